"""Checking one file: which rules matter, what they find, what comments silence."""

from __future__ import annotations

from torchlint.config import Settings
from torchlint.engine.results import FileResult
from torchlint.registry import Selection
from torchlint.source import Source

__all__ = ["check_bytes", "check_source"]


def check_source(source: Source, rules: Selection, settings: Settings) -> FileResult:
    """Give what the selected rules find in `source`."""
    raise NotImplementedError


def check_bytes(data: bytes, path: str, rules: Selection, settings: Settings) -> FileResult:
    """Give what the selected rules find in a file; bytes that are no text are one TL001."""
    raise NotImplementedError
