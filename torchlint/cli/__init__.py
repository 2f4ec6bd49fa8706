"""The command line: arguments in, text and an exit code out."""

from torchlint.cli.start import main

__all__ = ["main"]
