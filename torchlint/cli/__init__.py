"""The command line: parse arguments, run a command, return an exit code."""

from torchlint.cli.start import main

__all__ = ["main"]
