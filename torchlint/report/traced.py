"""A profiler's trace as a ranking of findings by the idle time that they cause."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from torchlint.profiles.idle import Cause, Cost, Idle, idle_time
from torchlint.profiles.places import Place, Places
from torchlint.profiles.reading import read_trace
from torchlint.report.entry import Entry, Traced
from torchlint.report.summary import plural

_LOADING: Final = "input pipeline"
"""The category of rules about loaders."""
_TALL: Final = 8
"""Lines above which a finding stands for its first line alone."""
_WORTH: Final = 0.01
"""The share of the time from which on a line without a finding is named."""
_NAMED: Final = 3
_LINES: Final = (".py(", ".py:")


@dataclass(frozen=True, slots=True)
class _Line:
    """A cause with its places and its cost."""

    cause: Cause
    places: list[tuple[Place, ...]]
    cost: Cost

    @property
    def name(self) -> str:
        """The innermost place in words, empty where none is known."""
        known = [place for level in self.places[:1] for place in level if place.lines]
        if not known:
            return ""
        place = known[0]
        called = f" `{place.called}`" if place.called else ""
        return f"{os.path.relpath(place.path)}:{min(place.lines)}{called}"

    def concerned(self, spots: Sequence[_Spot]) -> list[int]:
        """Return the findings that it is about: at its innermost line with any, or of loading."""
        if self.cause.loads:
            files = {place.path for level in self.places for place in level}
            found = [it for it, spot in enumerate(spots) if spot.loading and spot.is_in(files)]
            if found:
                return found
        for level in self.places:
            found = [it for it, spot in enumerate(spots) if spot.is_at(level)]
            if found:
                return found
        return []


class _Spot(NamedTuple):
    """Where a finding is."""

    path: str
    rows: range
    loading: bool

    @classmethod
    def of(cls, entry: Entry) -> _Spot:
        """Return the place of a finding; a tall one stands for its first line."""
        first, last = entry.start.row, entry.end.row
        rows = range(first, (last if last - first <= _TALL else first) + 1)
        return cls(os.path.realpath(entry.path), rows, entry.card.category == _LOADING)

    def is_in(self, files: set[str]) -> bool:
        """Return whether it is in one of the files, of which none may be known."""
        return not files or self.path in files

    def is_at(self, places: Sequence[Place]) -> bool:
        """Return whether it is at one of the places."""
        return any(
            place.path == self.path and not place.lines.isdisjoint(self.rows) for place in places
        )


@dataclass(frozen=True, slots=True)
class TraceReport:
    """The idle time of a trace."""

    file: Path
    idle: Idle
    has_stacks: bool

    def ranked(self, entries: Sequence[Entry], remarks: list[str]) -> list[Entry]:
        """Return the findings with what they cost, the most expensive first.

        Appends lines about the trace as a whole to `remarks`.
        """
        texts = {
            os.path.realpath(entry.path): entry.source.text
            for entry in entries
            if not entry.source.is_notebook
        }
        places = Places(texts, by_name=not self.has_stacks)
        lines = [
            _Line(cause, places.of(cause.stack), cost) for cause, cost in self.idle.causes.items()
        ]
        spots = [_Spot.of(entry) for entry in entries]
        matched: list[list[int]] = [[] for _ in entries]
        for at, line in enumerate(lines):
            for concerned in line.concerned(spots):
                matched[concerned].append(at)
        together = Counter(map(tuple, matched))
        found = [
            replace(entry, traced=self._traced(each, lines, together[tuple(each)]))
            for entry, each in zip(entries, matched, strict=True)
        ]
        costly = {(entry.path, entry.place.split(":")[0]) for entry in found if entry.traced}
        remarks += self._remarks(lines, {at for each in matched for at in each}, len(costly))
        remarks += self._warnings(places)
        return sorted(found, key=lambda entry: -entry.traced.share if entry.traced else 1.0)

    def _traced(self, matched: Sequence[int], lines: list[_Line], findings: int) -> Traced | None:
        time = sum(lines[at].cost.time for at in matched)
        waits = sum(lines[at].cost.waits for at in matched)
        if not matched or not (time or waits):
            return None
        return Traced(time / self.idle.window, bool(self.idle.devices), waits, findings)

    def _remarks(self, lines: list[_Line], matched: set[int], count: int) -> Iterator[str]:
        """Yield how long the device was idle, what explains it, and what no finding does."""
        idle = self.idle
        span = f"{idle.step / 1e3:.3g} ms{' per step' if idle.steps else ''}"
        explained = sum(lines[at].cost.time for at in matched) / idle.window
        by = f"{plural(count, 'line')} with findings explain{'s' * (count == 1)} {explained:.0%}"
        what = f"device idle {idle.time / idle.window:.0%} of {span}"
        if not idle.devices:
            what = f"no device, so the host's {span} are ranked"
        yield f"trace: {what}, {by if count else 'none of it at a line with a finding'}"
        others: defaultdict[str, float] = defaultdict(float)
        for at, line in enumerate(lines):
            if at not in matched and line.name:
                others[line.name] += line.cost.time / idle.window
        best = sorted(others, key=lambda name: -others[name])[:_NAMED]
        named = [f"{name} {others[name]:.0%}" for name in best if others[name] >= _WORTH]
        if named:
            yield f"trace: without a finding: {', '.join(named)}"

    def _warnings(self, places: Places) -> Iterator[str]:
        for path in places.differing:
            yield (
                f"trace: {os.path.relpath(path)} is not the version that was traced, "
                "so its lines were found by the names of functions and calls"
            )
        if not self.has_stacks:
            yield (
                "trace: it names no lines, so waits were found by the names of operators; "
                "record with `with_stack=True`"
            )


def read_report(file: Path) -> TraceReport:
    """Read a trace; raises `ProfileError` for a file that is none."""
    idle = idle_time(read_trace(file))
    has_stacks = any(
        mark in name for cause in idle.causes for name in cause.stack for mark in _LINES
    )
    return TraceReport(file, idle, has_stacks)
