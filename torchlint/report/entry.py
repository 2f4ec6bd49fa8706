"""A finding with all that a report needs to print it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from torchlint.finding import Finding, Fix, Safety
from torchlint.report.card import Card
from torchlint.source import Part, Position, Source

__all__ = ["Entry", "Measured", "Report"]

_AFTERWORDS: Final = {
    "SAME": ", no measurable difference",
    "SLOWER": ", slower",
    "DIFFERENT": ", other numbers",
    "UNSURE": ", too noisy to tell",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What fixing a rule's findings gained in this very script."""

    verdict: str
    device: str
    ratio: float
    """The step time of the original over that of the fixed script."""
    low: float
    high: float
    safety: Safety
    """The least safety among the fixes that were made."""
    findings: int = 1
    """How many findings were fixed together."""

    @property
    def share(self) -> float | None:
        """The share of a step that the findings cost, None where that could not be told."""
        if self.verdict in ("DIFFERENT", "UNSURE"):
            return None
        return 0.0 if self.verdict == "SAME" else 1 - 1 / self.ratio

    @property
    def words(self) -> str:
        """The result in a few words, with its device."""
        together = f", all {self.findings} together" if self.findings > 1 else ""
        return (
            f"measured {self.ratio:.2f}x on {self.device}{together}"
            f"{_AFTERWORDS.get(self.verdict, '')}"
        )


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


@dataclass(frozen=True)
class Report:
    """All that a run found, in order."""

    entries: tuple[Entry, ...]
    files: int = 0
    """How many files were looked at."""
    failed: bool = False
    """Whether the run itself failed somewhere."""
    quiet: bool = False
    """Whether text formats leave out the last line."""
    hidden: tuple[str, ...] = ()
    """What to say of findings that are left out: a line for each reason."""

    def by_path(self) -> Iterator[tuple[str, list[Entry]]]:
        """Give each path that has findings, with them."""
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries:
            groups.setdefault(entry.path, []).append(entry)
        yield from groups.items()
