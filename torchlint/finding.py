"""Findings and fixes: what a rule says of a script, free of any syntax tree."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Final

from torchlint.edit import Edit, Span
from torchlint.record import Record

__all__ = ["Finding", "Fix", "Note", "Safety"]


class Safety(IntEnum):
    """How far a fix can be trusted; a higher one promises more."""

    SHOW = 0
    UNSAFE = 1
    CLOSE = 2
    EXACT = 3

    @property
    def word(self) -> str:
        """The class as users write it: `exact`, `close`, `unsafe` or `show`."""
        return self.name.lower()

    @property
    def applicability(self) -> str:
        """Ruff's word for it: `safe`, `unsafe` or `display`."""
        return _APPLICABILITY[self]


_APPLICABILITY: Final = {
    Safety.SHOW: "display",
    Safety.UNSAFE: "unsafe",
    Safety.CLOSE: "safe",
    Safety.EXACT: "safe",
}


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that are made together or not at all; `because` says why not exact."""

    title: str
    edits: tuple[Edit, ...]
    safety: Safety
    because: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", _on_one_line(self.title))

    @classmethod
    def exact(cls, title: str, *edits: tuple[Edit, ...]) -> Fix:
        """Give a fix after which losses and parameters are bit for bit what they were."""
        return cls(title, tuple(chain(*edits)), Safety.EXACT)

    @classmethod
    def close(cls, title: str, *edits: tuple[Edit, ...], because: str) -> Fix:
        """Give a fix that keeps the mathematics and rounds otherwise."""
        return cls(title, tuple(chain(*edits)), Safety.CLOSE, because)

    @classmethod
    def unsafe(cls, title: str, *edits: tuple[Edit, ...], because: str) -> Fix:
        """Give a fix that changes what `because` names."""
        return cls(title, tuple(chain(*edits)), Safety.UNSAFE, because)


def _on_one_line(said: str) -> str:
    """Give what is said without the line ends of the code that it quotes."""
    return said if said.isprintable() else " ".join(said.split())


class Note(Record):
    """A second place that a finding speaks of ("loader made here")."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a rule has something to say."""

    code: str
    span: Span
    message: str
    fix: Fix | None = None
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _on_one_line(self.message))
