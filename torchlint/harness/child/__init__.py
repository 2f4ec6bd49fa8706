"""The code that runs in the script's own process; only this package imports torch."""
