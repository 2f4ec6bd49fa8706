"""All that a run found: what every format is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torchlint.report.entry import Entry

__all__ = ["Report"]


class Report(NamedTuple):
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
