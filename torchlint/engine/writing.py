"""Writing a file so that it is either the old one or the new one."""

from __future__ import annotations

from pathlib import Path

from torchlint.source import Source

__all__ = ["WriteError", "write_atomic"]


class WriteError(Exception):
    """A file that was not written and is as it was; the message says why in one line."""


def write_atomic(path: Path, source: Source, expected: bytes) -> None:
    """Put `source` in the place of a file that still holds `expected`; raises `WriteError`."""
    raise NotImplementedError
