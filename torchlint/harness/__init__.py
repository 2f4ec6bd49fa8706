"""The harness: runs a script as it is and as fixed, side by side, and says which is better."""
