"""All that a run found: what every format is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from torchlint.record import Record

if TYPE_CHECKING:
    from torchlint.report.entry import Entry

__all__ = ["Report", "Tally"]


class Tally(Record):
    """How many findings there are, and what could be done about them."""

    found: int = 0
    fixable: int = 0
    """How many of them `fix` mends under these settings."""
    withheld: int = 0
    """How many more it would mend if unsafe fixes were allowed."""
    unsafe: bool = False
    """Whether a fix that it makes is unsafe."""

    def with_more(self, entries: Iterable[Entry]) -> Tally:
        """Give the tally of more findings."""
        found, fixable, withheld, unsafe = self
        for entry in entries:
            found += 1
            fixable += entry.fixable
            withheld += entry.withheld
            unsafe = unsafe or entry.unsafe
        return Tally(found, fixable, withheld, unsafe)


class Report(Record):
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
    told: Tally = Tally()
    """The findings that are told already, file by file: they are no entries any more."""

    @property
    def tally(self) -> Tally:
        """How much was found."""
        return self.told.with_more(self.entries)

    def in_order(self) -> Iterator[list[Entry]]:
        """Give the findings that stand one behind the other and are of the same file."""
        for _, entries in groupby(self.entries, attrgetter("path")):
            yield list(entries)

    def by_path(self) -> Iterator[tuple[str, list[Entry]]]:
        """Give each path that has findings, with them."""
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries:
            groups.setdefault(entry.path, []).append(entry)
        yield from groups.items()
