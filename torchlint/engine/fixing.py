"""Fixing one file: passes to a fixed point, each of them checked."""

from __future__ import annotations

from collections.abc import Callable

from torchlint.config import Settings
from torchlint.engine.results import FixResult
from torchlint.finding import Finding
from torchlint.registry import Selection
from torchlint.source import Source

__all__ = ["fix_bytes", "fix_source"]


def fix_source(
    source: Source,
    rules: Selection,
    settings: Settings,
    accept: Callable[[Source, Finding], bool] | None = None,
) -> FixResult:
    """Apply every enabled fix, again and again until there is none.

    `accept` is asked once for each finding whose fix is about to be made, with the text it is in.
    """
    raise NotImplementedError


def fix_bytes(
    data: bytes,
    path: str,
    rules: Selection,
    settings: Settings,
    accept: Callable[[Source, Finding], bool] | None = None,
) -> FixResult:
    """Fix a file; bytes that are no text are left as they are with one TL001."""
    raise NotImplementedError
