"""The results of a run, which every format prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from torchlint.measurement import Measurement
    from torchlint.report.entry import Entry

_ASSUMED: Final = {"error": 1.5, "warning": 1.15, "note": 1.03}
"""The speed-up to rank an unmeasured finding by."""
_ASIDE: Final = re.compile(r" *\(.*\)|^NVIDIA +")
_SEVERE_FIRST: Final = {"error": 0, "warning": 1, "note": 2}


class Tally(NamedTuple):
    """Counts of findings and of available fixes."""

    found: int = 0
    fixable: int = 0
    """How many of them `fix` applies under these settings."""
    withheld: int = 0
    """How many more it would apply if unsafe fixes were allowed."""
    unsafe: bool = False
    """Whether any of the applied fixes is unsafe."""
    failing: int = 0
    """How many of the findings make the run fail."""
    folded: int = 0
    """How many are only counted."""
    worth: Mapping[str, Worth] = {}
    """What the findings are worth, by code."""
    script: str | None = None
    """The only file with findings, None if there are several."""

    def with_more(self, entries: Iterable[Entry]) -> Tally:
        """Return the tally with more findings added."""
        found, fixable, withheld, unsafe, failing, folded, worth, script = self
        worth = dict(worth)
        for entry in entries:
            script = entry.path if script == entry.path or not found else None
            found += 1
            fixable += entry.fixable
            withheld += entry.withheld
            unsafe = unsafe or entry.unsafe
            failing += entry.fails
            folded += entry.is_folded
            if entry.finding.code not in worth:
                worth[entry.finding.code] = Worth.of(entry)
        return Tally(found, fixable, withheld, unsafe, failing, folded, worth, script)


class Unfinished(NamedTuple):
    """A file that could not be checked or fixed completely."""

    path: str
    said: str
    """A line that says what could not be finished, and why."""


class Report(NamedTuple):
    """The results of a run, in order."""

    entries: tuple[Entry, ...]
    files: int = 0
    """The number of checked files."""
    failed: bool = False
    """Whether the run itself failed."""
    quiet: bool = False
    """Whether text formats leave out the last line."""
    hidden: tuple[str, ...] = ()
    """A line for each reason why findings are hidden."""
    told: Tally = Tally()
    """The findings that were already printed, file by file, and are not among the entries."""
    unfinished: tuple[Unfinished, ...] = ()
    """What could not be finished in single files."""

    @property
    def tally(self) -> Tally:
        """The counts of all findings."""
        return self.told.with_more(self.entries)

    def in_order(self) -> Iterator[list[Entry]]:
        """Yield the consecutive findings of each file."""
        for _, entries in groupby(self.entries, attrgetter("path")):
            yield list(entries)

    def by_path(self) -> Iterator[tuple[str, list[Entry]]]:
        """Return the findings by path."""
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries:
            groups.setdefault(entry.path, []).append(entry)
        yield from groups.items()


class Worth(NamedTuple):
    """The expected gain of fixing the findings of one rule."""

    ratio: float
    figure: str = ""
    """The measured speed-up with its device, empty if it was not measured."""

    @classmethod
    def of(cls, entry: Entry) -> Worth:
        """Return what a finding is worth: measured in its script or on a fixture, or assumed."""
        own, evidence = entry.measured, _evidence(entry)
        if own is not None and own.verdict == "FASTER":
            return cls(own.ratio, f"{own.ratio:.1f}x measured here")
        if own is not None:
            return cls(1.0)
        if entry.traced is not None:
            share = min(entry.traced.share, 0.99)
            return cls(1 / (1 - share), f"{share:.0%} of the trace")
        if evidence is not None:
            return cls(evidence.ratio, figure(evidence))
        return cls(_ASSUMED[entry.severity])


def figure(measurement: Measurement) -> str:
    """Return a measured speed-up with the short name of its device."""
    return f"{measurement.ratio:.1f}x on {_ASIDE.sub('', measurement.device)}"


def tag(entry: Entry) -> str:
    """Return the impact of a finding, with the measured speed-up of its fix."""
    evidence = _evidence(entry) if entry.measured is None else None
    parts = (entry.impact, figure(evidence) if evidence is not None else "")
    return ", ".join(filter(None, parts))


def _evidence(entry: Entry) -> Measurement | None:
    """Return the speed-up measured on a fixture, None where little is at stake in this script."""
    evidence = entry.card.evidence
    faster = evidence is not None and evidence.verdict == "FASTER"
    return evidence if faster and entry.impact != "low" else None


def in_order_of(order: str, entries: Iterable[Entry]) -> list[Entry]:
    """Return findings by `impact`, `cost` or `code`, else as they are."""
    if order == "impact":
        return sorted(entries, key=lambda entry: _SEVERE_FIRST[entry.severity])
    if order == "cost":
        return sorted(entries, key=lambda entry: -Worth.of(entry).ratio)
    if order == "code":
        return sorted(entries, key=lambda entry: entry.finding.code)
    return list(entries)
