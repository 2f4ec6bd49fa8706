"""A finding with all that a report needs to print it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from torchlint.finding import Finding, Fix, Safety
from torchlint.source import Part, Position, Source

if TYPE_CHECKING:
    from torchlint.report.card import Card
    from torchlint.report.gain import Measured

__all__ = ["Entry"]


@dataclass(frozen=True)
class Entry:
    """One finding, the file it stands in and the rule that made it."""

    path: str
    source: Source
    finding: Finding
    card: Card
    threshold: Safety = Safety.CLOSE
    """The least safety of the fixes that the settings of the file apply."""
    measured: Measured | None = None
    """What its fix gained, where a report of a verification said so."""

    @cached_property
    def part(self) -> Part:
        """The finding in the cell of a notebook, or in the file."""
        return self.source.part(self.finding.span)

    @cached_property
    def start(self) -> Position:
        """Where the finding begins."""
        return self.part.start

    @cached_property
    def end(self) -> Position:
        """Where the finding ends: the place after its last character."""
        return self.part.end

    @property
    def in_file(self) -> tuple[Position, Position]:
        """Start and end for a format that knows no cells: for a notebook, its top."""
        top = Position(1, 1)
        return (self.start, self.end) if self.part.cell is None else (top, top)

    @property
    def place(self) -> str:
        """Row and column of the finding, in a notebook with the cell."""
        return self.part.place

    @property
    def fix(self) -> Fix | None:
        """The fix, None where the rule only reports."""
        return self.finding.fix

    @property
    def fixable(self) -> bool:
        """Whether `fix` makes the fix under these settings."""
        return self.fix is not None and self.fix.safety >= self.threshold

    @property
    def unsafe(self) -> bool:
        """Whether `fix` makes the fix though it is unsafe."""
        return self.fixable and self.fix is not None and self.fix.safety is Safety.UNSAFE

    @property
    def withheld(self) -> bool:
        """Whether `fix` would make the fix if unsafe ones were allowed."""
        return self.fix is not None and Safety.UNSAFE <= self.fix.safety < self.threshold

    @property
    def message(self) -> str:
        """What a line for people says: the rule's message, and what was measured."""
        measured = f" ({self.measured.words})" if self.measured else ""
        return f"{self.finding.message}{measured}"

    @property
    def message_in_file(self) -> str:
        """The message for a format that knows no cells: in a notebook it says where it belongs."""
        cell = self.part.cell
        where = "" if cell is None else f"cell {cell}, line {self.start.row}: "
        return f"{where}{self.message}"
