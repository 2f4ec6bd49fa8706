"""The command line: arguments in, text and an exit code out."""

from torchlint.cli.program import main

__all__ = ["main"]
