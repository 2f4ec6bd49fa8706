"""Findings and fixes: what a rule reports about a script, without any syntax tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, pairwise
from typing import Final, Literal, NamedTuple

from torchlint.edit import Edit, Span, clash, in_order

Impact = Literal["high", "medium", "low"]
"""What is at stake: how much a finding can matter."""


class Safety(IntEnum):
    """How safe a fix is to apply; a higher value promises more."""

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
        """The applicability that Ruff would give the fix: `safe`, `unsafe` or `display`."""
        return _APPLICABILITY[self]


_APPLICABILITY: Final = {
    Safety.SHOW: "display",
    Safety.UNSAFE: "unsafe",
    Safety.CLOSE: "safe",
    Safety.EXACT: "safe",
}


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that are made together or not at all; `because` says why the fix is not exact."""

    title: str
    edits: tuple[Edit, ...]
    safety: Safety
    because: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", _on_one_line(self.title))

    @classmethod
    def exact(cls, title: str, *edits: tuple[Edit, ...]) -> Fix:
        """Return a fix that leaves losses and parameters bit-identical."""
        return cls(title, tuple(chain(*edits)), Safety.EXACT)

    @classmethod
    def close(cls, title: str, *edits: tuple[Edit, ...], because: str) -> Fix:
        """Return a fix that computes the same up to rounding."""
        return cls(title, tuple(chain(*edits)), Safety.CLOSE, because)

    @classmethod
    def unsafe(cls, title: str, *edits: tuple[Edit, ...], because: str) -> Fix:
        """Return a fix that changes what `because` names."""
        return cls(title, tuple(chain(*edits)), Safety.UNSAFE, because)

    @classmethod
    def of_several(cls, fixes: Sequence[Fix]) -> Fix | None:
        """Return one fix that makes several, as safe as the least safe of them.

        It is None if there is none, or if their edits clash.
        """
        edits = in_order(chain(*(each.edits for each in fixes)))
        if not fixes or any(clash(one, other) for one, other in pairwise(edits)):
            return None
        more = f", and {len(fixes) - 1} more" if fixes[1:] else ""
        reasons = "; ".join(dict.fromkeys(each.because for each in fixes if each.because))
        safety = min(each.safety for each in fixes)
        return cls(f"{fixes[0].title}{more}", tuple(edits), safety, reasons)


def _on_one_line(said: str) -> str:
    """Return a message without the line ends of code that it quotes."""
    return said if said.isprintable() else " ".join(said.split())


class Note(NamedTuple):
    """A second place that belongs to a finding ("loader made here").

    A place in another file has a `path`, relative to the same folder as that of the finding's file,
    and a `row`; its span is empty.
    """

    span: Span
    message: str
    path: str = ""
    row: int = 0

    @classmethod
    def elsewhere(cls, message: str, path: str, row: int) -> Note:
        """Return a note about a line of another file."""
        return cls(Span(0, 0), message, path, row)

    @property
    def place(self) -> str:
        """The place in another file as printed in reports: `data.py:12`."""
        return f"{self.path}:{self.row}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that a rule reports, with its place and perhaps a fix."""

    code: str
    span: Span
    message: str
    fix: Fix | None = None
    notes: tuple[Note, ...] = ()
    impact: Impact | None = None
    """What is at stake here, None where it is what the rule's page says."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _on_one_line(self.message))
