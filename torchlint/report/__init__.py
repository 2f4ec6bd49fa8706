"""What a run found, as text, JSON, SARIF and GitHub annotations."""
