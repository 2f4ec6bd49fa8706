"""Whether a text mentions a suppression at all: a look that imports nothing."""

from __future__ import annotations

__all__ = ["mentions_suppression"]


def mentions_suppression(text: str) -> bool:
    """Whether a text holds a word that every suppression has."""
    said = text.lower()
    return "noqa" in said or "torchlint" in said
