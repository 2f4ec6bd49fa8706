"""Rows: one technique and what a script makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Row", "State"]


class State(Enum):
    """What is known of a technique in a script."""

    IN_USE = "in use"
    MISSING = "missing"
    NOT_APPLICABLE = "not applicable"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the checklist."""

    family: str
    technique: str
    articles: tuple[str, ...]
    """Where the technique is described: `S3.7` is the seventh tip of the article S3."""
    state: State
    line: int | None
    why: str
    rules: tuple[str, ...] = ()
    """The codes that say that it is missing; none where no rule demands the technique."""
    gain: str = ""
    """What a missing technique brought where it was measured, or what is cited for it."""
    cell: int | None = None
    """The cell of a notebook that the line is counted in."""

    @property
    def place(self) -> str:
        """Where to look: `4`, in a notebook `3:4` for the fourth line of cell 3."""
        if self.line is None:
            return ""
        return f"{self.line}" if self.cell is None else f"{self.cell}:{self.line}"
