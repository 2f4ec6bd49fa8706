"""Output formats for findings, verifications, searches and audits."""
