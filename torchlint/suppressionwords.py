"""A quick test for suppression comments that imports nothing."""

from __future__ import annotations


def has_suppression_word(text: str) -> bool:
    """Return whether a text contains one of the words that every suppression comment has."""
    said = text.lower()
    return "noqa" in said or "torchlint" in said
