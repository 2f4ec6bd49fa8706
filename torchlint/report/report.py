"""The results of a run, which every format prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from torchlint.report.worth import Worth

if TYPE_CHECKING:
    from torchlint.report.entry import Entry


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
