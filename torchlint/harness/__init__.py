"""The harness: run the original and the fixed script in turns, and judge each fix."""
