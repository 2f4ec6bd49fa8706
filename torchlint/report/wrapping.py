"""Sentences wrapped to the width of a terminal."""

from __future__ import annotations

import textwrap
from typing import Final

_LEAST: Final = 30


def wrapped(text: str, width: int, indent: int) -> list[str]:
    """Return a sentence as indented lines that fit, wrapped between words where possible."""
    return textwrap.wrap(
        text,
        max(width, indent + _LEAST),
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
