"""The exit codes of a program that a signal ended."""

from __future__ import annotations

from typing import Final

__all__ = ["INTERRUPTED", "READER_GONE"]

INTERRUPTED: Final = 130
"""SIGINT: somebody pressed Ctrl-C."""
READER_GONE: Final = 141
"""SIGPIPE: who read the output read no further."""
