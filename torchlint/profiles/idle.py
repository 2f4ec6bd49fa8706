"""The time in which a device had nothing to do, and what the host did meanwhile."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from torchlint.profiles.recording import Call, Ranges, Recording, Stack, own_times, stacks_at

_NEAR: Final = 20.0
"""Microseconds by which the clocks of host and device may differ."""
_LOOKS: Final = 8
"""Moments of a gap at which the host is looked at."""
_LOADING: Final = re.compile(
    r"enumerate\(DataLoader\)#|(?:.*[/\\])?utils[/\\]data[/\\]dataloader\.py\(\d+\): __next__"
)

_OPERATOR: Final = re.compile("::|#")
"""What the names of operators and of torch's own ranges contain."""


class Cause(NamedTuple):
    """What the host did while a device had nothing to do."""

    stack: Stack
    loads: bool = False
    """Whether it waited for a loader."""
    call: str = ""
    """The call in which it waited for the device, before the device had nothing to do."""


@dataclass(slots=True)
class Cost:
    """What a cause cost."""

    time: float = 0.0
    """Microseconds in which a device was idle; those of the host where there is no device."""
    waits: int = 0
    """How often the host waited for the device."""


@dataclass(slots=True)
class Idle:
    """The idle time of all devices of a trace."""

    devices: int
    """0 for a trace without a device, whose times are those of the host."""
    window: float
    """Microseconds that were recorded, of all devices together."""
    steps: int
    """Steps that were recorded, 0 where that is unknown."""
    time: float = 0.0
    """Idle microseconds of all devices together; all of them where there is no device."""
    causes: dict[Cause, Cost] = field(default_factory=lambda: defaultdict(Cost))

    @property
    def step(self) -> float:
        """Microseconds of a step, or of all that was recorded."""
        return self.window / max(1, self.devices) / max(1, self.steps)


class _Gap(NamedTuple):
    """A time in which a device had nothing to do, and the correlation of what ended it."""

    start: float
    end: float
    correlation: int


def idle_time(recording: Recording) -> Idle:
    """Return where the devices were idle; for a trace without any, where the host spent time."""
    main = max(recording.ranges, key=lambda it: len(recording.ranges[it]), default=0)
    steps = len(recording.steps) or recording.updates
    if not recording.work:
        return _time_of_host(recording, main, steps)
    found = Idle(len(recording.work), 0.0, steps)
    gaps: list[_Gap] = []
    for ranges in recording.work.values():
        end = _collect(ranges, gaps)
        found.window += end - min(ranges.starts)
    found.time = sum(gap.end - gap.start for gap in gaps)
    _Attribution(recording, main, found).run(gaps)
    return found


def _collect(ranges: Ranges, gaps: list[_Gap]) -> float:
    """Add the gaps of a device over all its streams, and return when its work ended."""
    order = ranges.in_order()
    end = ranges.starts[order[0]]
    for at in order:
        start = ranges.starts[at]
        if start > end:
            gaps.append(_Gap(end, start, ranges.numbers[at]))
        end = max(end, ranges.ends[at])
    return end


def _time_of_host(recording: Recording, main: int, steps: int) -> Idle:
    ranges = recording.ranges[main]
    start, end = _trained(recording, ranges)
    found = Idle(0, end - start, steps, end - start)
    for stack, time in own_times(ranges, recording.names, start, end):
        loads = any(map(_LOADING.match, stack))
        found.causes[Cause(stack, loads)].time += max(0.0, time)
    return found


def _trained(recording: Recording, ranges: Ranges) -> tuple[float, float]:
    """Return from when to when there were steps or operators, without the profiler's own start."""
    names = recording.names
    named = recording.steps or [each for each in ranges if _OPERATOR.search(names[each[2]])]
    shown = list(named or ranges)
    return min(start for start, _, _ in shown), max(end for _, end, _ in shown)


class _Look(NamedTuple):
    """A moment at which to look at a thread, and what to charge to what it was doing."""

    moment: float
    time: float = 0.0
    waits: int = 0
    call: str = ""
    chain: int = 0
    loads: bool = False


class _Attribution:
    """Charges gaps to what the host did."""

    def __init__(self, recording: Recording, main: int, found: Idle) -> None:
        self._recording = recording
        self._main = main
        self._found = found
        self._waits = sorted(_waits(recording), key=lambda wait: wait.end)
        self._ends = [wait.end for wait in self._waits]
        own = recording.ranges.get(main, Ranges())
        self._loading = _loading(own, recording.names)
        self._looks: defaultdict[int, list[_Look]] = defaultdict(list)

    def run(self, gaps: list[_Gap]) -> None:
        """Charge all gaps, and count the waits."""
        launches = _launches(self._recording, {gap.correlation for gap in gaps})
        for wait in self._waits:
            self._looks[wait.thread].append(_Look(wait.start, 0.0, 1, wait.name, wait.chain))
        for gap in gaps:
            launch = launches.get(gap.correlation) or Call(gap.end, gap.end, self._main, "")
            if launch.start > gap.start:
                self._charge(gap, launch)
        for thread, looks in self._looks.items():
            self._look(thread, sorted(looks))

    def _charge(self, gap: _Gap, launch: Call) -> None:
        """Charge a gap that lasted because the host came late with more work."""
        left = gap.end - gap.start
        for start, end in _overlaps(self._loading, gap.start, launch.start):
            look = _Look((start + end) / 2, end - start, loads=True)
            self._looks[self._main].append(look)
            left -= end - start
        wait = self._wait_before(gap, launch)
        if wait is not None:
            look = _Look(wait.start, left, 0, wait.name, wait.chain)
            self._looks[wait.thread].append(look)
            return
        width = (launch.start - gap.start) / _LOOKS
        moments = [gap.start + width * (number + 0.5) for number in range(_LOOKS)]
        inside = self._loading
        moments = [it for it in moments if not any(_overlaps(inside, it, it + 1e-3))] or moments
        time = left / len(moments)
        self._looks[launch.thread] += [_Look(it, time, chain=launch.chain) for it in moments]

    def _wait_before(self, gap: _Gap, launch: Call) -> Call | None:
        """Return the wait that let the device run out of work, None where there was none."""
        at = bisect_left(self._ends, gap.start - _NEAR)
        found = None
        while at < len(self._waits) and self._ends[at] <= launch.start + _NEAR:
            if self._waits[at].start <= gap.start + _NEAR:
                found = self._waits[at]
            at += 1
        return found

    def _look(self, thread: int, looks: list[_Look]) -> None:
        """Charge the looks at a thread to the stacks that it had.

        One without Python, such as that of the backward pass, works for the main one.
        """
        recording = self._recording
        times = [look.moment for look in looks]
        own, main = (
            stacks_at(recording.ranges.get(it, Ranges()), recording.names, times)
            for it in (thread, self._main)
        )
        for look, stack, instead in zip(looks, own, main, strict=True):
            shown = stack if any(".py" in name for name in stack) else instead
            shown = (*recording.frames.get(look.chain, ()), *shown)
            cost = self._found.causes[Cause(shown, look.loads, look.call)]
            cost.time += look.time
            cost.waits += look.waits


def _waits(recording: Recording) -> Iterator[Call]:
    """Yield the calls that wait: those that always do, and copies that ended before the call.

    A copy and the wait right after it, such as those of `item()`, are one.
    """
    copies = [
        copy
        for ranges in recording.work.values()
        for _, end, correlation in ranges
        if (copy := recording.copies.get(correlation)) is not None and copy.end >= end
    ]
    last: Call | None = None
    for call in sorted((*recording.waits, *copies), key=lambda each: (each.thread, each.start)):
        follows = last is not None and last.thread == call.thread
        if last is not None and follows and 0 <= call.start - last.end < _NEAR:
            last = last._replace(end=call.end)
            continue
        if last is not None:
            yield last
        last = call
    if last is not None:
        yield last


def _launches(recording: Recording, wanted: set[int]) -> dict[int, Call]:
    """Return the calls with some correlations."""
    calls = zip(recording.launches, recording.launchers, recording.chains, strict=True)
    return {
        correlation: Call(start, end, thread, "", chain)
        for (start, end, correlation), thread, chain in calls
        if correlation in wanted and correlation
    }


def _loading(ranges: Ranges, names: list[str]) -> list[tuple[float, float]]:
    """Return the times in which a thread waited for a loader, in order and apart."""
    wanted = {number for number, name in enumerate(names) if _LOADING.match(name)}
    found: list[tuple[float, float]] = []
    for start, end, _ in sorted(each for each in ranges if each[2] in wanted):
        if not found or start > found[-1][1]:
            found.append((start, end))
    return found


def _overlaps(
    inside: list[tuple[float, float]], start: float, end: float
) -> Iterator[tuple[float, float]]:
    """Yield the parts of a time that some ranges cover."""
    at = max(0, bisect_left(inside, (start, start)) - 1)
    while at < len(inside) and inside[at][0] < end:
        first, last = max(start, inside[at][0]), min(end, inside[at][1])
        if first < last:
            yield first, last
        at += 1
