"""Verdicts from runs: the numbers compared, the times compared."""
