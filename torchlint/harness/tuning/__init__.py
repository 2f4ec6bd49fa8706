"""The search for a loader's settings."""
