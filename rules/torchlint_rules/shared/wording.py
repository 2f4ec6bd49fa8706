"""How messages list what they name."""

from __future__ import annotations

from collections.abc import Sequence


def listed(words: Sequence[str]) -> str:
    """Return words as in `a, b and c`."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def quoted(names: Sequence[str]) -> str:
    """Return names as `listed` does, each as code."""
    return listed([f"`{name}`" for name in names])
