"""A finding with everything that a report prints about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from torchlint.finding import Finding, Fix, Note, Safety
from torchlint.source import Part, Position, Source

if TYPE_CHECKING:
    from torchlint.report.card import Card

_BY_IMPACT: Final[Mapping[str, str]] = {"high": "error", "medium": "warning", "low": "note"}
_ORDER: Final = ("note", "warning", "error")
_AFTERWORDS: Final = {
    "SAME": ", no measurable difference",
    "SLOWER": ", slower",
    "DIFFERENT": ", other numbers",
    "UNSURE": ", too noisy to tell",
}


@dataclass(frozen=True)
class Entry:
    """A finding, its file and its rule."""

    path: str
    source: Source
    finding: Finding
    card: Card
    threshold: Safety = Safety.CLOSE
    """The least safety class that the settings of the file apply."""
    chosen_severity: str | None = None
    """The severity that the settings choose for the rule, None where they choose none."""
    fail_on: str = "low"
    """The step from which on a finding makes a run fail."""
    folds: bool = False
    """Whether findings of low impact are counted and not printed beside others."""
    measured: Measured | None = None
    """The measured gain of its fix, from a report of a verification."""
    traced: Traced | None = None
    """What it costs, from a profiler's trace."""

    @cached_property
    def part(self) -> Part:
        """The finding within its notebook cell, or within the file."""
        return self.source.part(self.finding.span)

    @cached_property
    def start(self) -> Position:
        """Where the finding begins."""
        return self.part.start

    @cached_property
    def end(self) -> Position:
        """Where the finding ends: the position after its last character."""
        return self.part.end

    @property
    def in_file(self) -> tuple[Position, Position]:
        """Start and end for a format without cells: for a notebook, the top of the file."""
        top = Position(1, 1)
        return (self.start, self.end) if self.part.cell is None else (top, top)

    @property
    def place(self) -> str:
        """Row and column of the finding, with the cell in a notebook."""
        return self.part.place

    @property
    def fix(self) -> Fix | None:
        """The fix, None where the rule only reports."""
        return self.finding.fix

    @property
    def impact(self) -> str:
        """What is at stake: as the finding says, else as the rule's page does."""
        return self.finding.impact or self.card.impact

    @property
    def fixable(self) -> bool:
        """Whether `fix` applies the fix under these settings."""
        return self.fix is not None and self.fix.safety >= self.threshold

    @property
    def unsafe(self) -> bool:
        """Whether `fix` applies the fix although it is unsafe."""
        return self.fixable and self.fix is not None and self.fix.safety is Safety.UNSAFE

    @property
    def withheld(self) -> bool:
        """Whether `fix` would apply the fix if unsafe ones were allowed."""
        return self.fix is not None and Safety.UNSAFE <= self.fix.safety < self.threshold

    @property
    def severity(self) -> str:
        """`error`, `warning` or `note`."""
        return severity_of(self.impact, self.chosen_severity)

    @property
    def fails(self) -> bool:
        """Whether the finding makes a run fail."""
        return at_least(self.severity, self.fail_on)

    @property
    def is_folded(self) -> bool:
        """Whether the finding is only counted if there are others."""
        return self.folds and self.severity == "note"

    @property
    def message(self) -> str:
        """The rule's message, with what was measured."""
        known = [each.words for each in (self.measured, self.traced) if each is not None]
        measured = f" ({'; '.join(known)})" if known else ""
        return f"{self.finding.message}{measured}"

    @property
    def message_in_file(self) -> str:
        """The message for a format without cells: in a notebook it names the cell."""
        cell = self.part.cell
        where = "" if cell is None else f"cell {cell}, line {self.start.row}: "
        return f"{where}{self.message}"

    @property
    def notes_here(self) -> tuple[Note, ...]:
        """The notes about other places of the same file."""
        return tuple(note for note in self.finding.notes if not note.path)

    @property
    def notes_elsewhere(self) -> tuple[Note, ...]:
        """The notes about places in other files."""
        return tuple(note for note in self.finding.notes if note.path)

    @property
    def remarks(self) -> str:
        """The notes about other files as one text to append to a message, often empty."""
        return "".join(f"; {note.message} ({note.place})" for note in self.notes_elsewhere)


def severity_of(impact: str, chosen: str | None = None) -> str:
    """Return `error`, `warning` or `note`: what the settings chose, else by the impact."""
    return chosen or _BY_IMPACT.get(impact, "warning")


def at_least(severity: str, step: str) -> bool:
    """Return whether a severity reaches a step, which may be an impact as well."""
    return _ORDER.index(severity) >= _ORDER.index(_BY_IMPACT.get(step, step))


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured gain of fixing a rule's findings in this script."""

    verdict: str
    device: str
    ratio: float
    """The step time of the original over that of the fixed script."""
    low: float
    high: float
    safety: Safety
    """The least safety class of the applied fixes."""
    findings: int = 1
    """How many findings were fixed together."""

    @property
    def share(self) -> float | None:
        """The share of a step that the findings cost, None where that is unknown."""
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


@dataclass(frozen=True, slots=True)
class Traced:
    """What a profiler's trace shows at the lines of a finding."""

    share: float
    """The share of the recorded time in which the device was idle because of them.

    In a trace without a device, the share in which the host was there.
    """
    on_device: bool
    waits: int
    """How often the host waited there for the device."""
    findings: int = 1
    """How many findings are about the same lines."""

    @property
    def words(self) -> str:
        """The cost in a few words."""
        what = "device idle" if self.on_device else "host busy"
        waits = f", {self.waits} waits" if self.waits > 1 else ", 1 wait" if self.waits else ""
        together = f", all {self.findings} together" if self.findings > 1 else ""
        return f"trace: {what} {100 * self.share:.2g} %{waits}{together}"
