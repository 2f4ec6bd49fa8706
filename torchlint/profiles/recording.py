"""What a profiler recorded: the device's work, and what the host did meanwhile."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_MOST: Final = 20_000_000
"""The most events of a trace; a training step has a few thousand."""
_BUILTIN: Final = re.compile(r"<built-in (?:method|function) (\w+)(?: of .*)?>")
_WAITS: Final = re.compile(
    r"(?:cu|cuda|hip|ze)\w*(?:Synchronize|Free|HostSynchronize)$|(?:cuda|hip)Memcpy(?:WithStream)?$"
)
_COPIES: Final = re.compile(r"(?:cuda|hip)Memcpy\w*Async|cuMemcpy\w*Async")
_VERSION: Final = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
_STEP: Final = re.compile(r"ProfilerStep#\d+")
_UPDATE: Final = "Optimizer.step#"
Stack = tuple[str, ...]
"""Names of nested ranges, the innermost first."""


class ProfileError(Exception):
    """The file is not a trace that can be read; the message says why in one line."""


class Ranges:
    """The ranges of time of one kind, in microseconds; a range has a number beside its times."""

    __slots__ = ("ends", "numbers", "starts")

    def __init__(self) -> None:
        self.starts = array("d")
        self.ends = array("d")
        self.numbers = array("q")

    def add(self, start: float, end: float, number: int) -> None:
        """Add a range."""
        self.starts.append(start)
        self.ends.append(end)
        self.numbers.append(number)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[float, float, int]]:
        return zip(self.starts, self.ends, self.numbers, strict=True)

    def in_order(self) -> list[int]:
        """Return the positions of the ranges by start, longer ones first."""
        starts, ends = self.starts, self.ends
        return sorted(range(len(starts)), key=lambda at: (starts[at], -ends[at]))


class Call(NamedTuple):
    """A call of the device's runtime by the host."""

    start: float
    end: float
    thread: int
    name: str
    chain: int = 0
    """The call chain that the profiler recorded with it, 0 without one."""


class Recording:
    """The events of one trace."""

    def __init__(self) -> None:
        self.work: dict[int, Ranges] = {}
        """What each device did, on all of its streams; the numbers are correlations."""
        self.ranges: dict[int, Ranges] = {}
        """What each thread of the host did, nested; the numbers are names."""
        self.launches = Ranges()
        """Calls that gave a device work; the numbers are correlations."""
        self.launchers = array("q")
        """The threads of these calls, and their call chains."""
        self.chains = array("q")
        self.waits: list[Call] = []
        self.copies: dict[int, Call] = {}
        """Copies that may make the host wait, by correlation."""
        self.steps = Ranges()
        self.updates = 0
        """Updates by optimizers."""
        self.frames: dict[int, tuple[str, ...]] = {}
        """The Python frames of call chains, innermost first."""
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._events = 0

    def add_work(self, device: int, start: float, end: float, correlation: int) -> None:
        """Add a kernel or a copy of a device."""
        self._count()
        ranges = self.work.get(device)
        if ranges is None:
            ranges = self.work[device] = Ranges()
        ranges.add(start, end, correlation)

    def add_range(self, thread: int, start: float, end: float, name: str) -> None:
        """Add what a thread did: a Python function, an operator, or a named range."""
        self._count()
        if name.startswith("ProfilerStep#") and _STEP.fullmatch(name):
            self.steps.add(start, end, len(self.steps))
            return
        self.updates += name.startswith(_UPDATE)
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(plain(name))
        ranges = self.ranges.get(thread)
        if ranges is None:
            ranges = self.ranges[thread] = Ranges()
        ranges.add(start, end, number)

    def add_call(self, call: Call, correlation: int) -> None:
        """Add a call of the device's runtime."""
        self._count()
        name = _VERSION.sub("", call.name)
        call = call._replace(name=name)
        if _WAITS.fullmatch(name):
            self.waits.append(call)
        elif _COPIES.match(name):
            self.copies[correlation] = call
        self.launches.add(call.start, call.end, correlation)
        self.launchers.append(call.thread)
        self.chains.append(call.chain)

    def _count(self) -> None:
        self._events += 1
        if self._events > _MOST:
            raise ProfileError(f"it has more than {_MOST:,} events; record fewer steps")


def plain(name: str) -> str:
    """Return a name without the address of an object."""
    found = _BUILTIN.match(name)
    return found[1] if found else name


def stacks_at(ranges: Ranges, names: Sequence[str], times: Sequence[float]) -> list[Stack]:
    """Return the stack of a thread at each of several moments, which are in order."""
    order, begun = ranges.in_order(), 0
    stack: list[tuple[float, int]] = []
    found = []
    for time in times:
        while begun < len(order) and ranges.starts[order[begun]] <= time:
            at = order[begun]
            while stack and stack[-1][0] <= ranges.starts[at]:
                stack.pop()
            stack.append((ranges.ends[at], ranges.numbers[at]))
            begun += 1
        found.append(tuple(names[number] for end, number in reversed(stack) if end >= time))
    return found


def own_times(
    ranges: Ranges, names: Sequence[str], first: float, last: float
) -> Iterator[tuple[Stack, float]]:
    """Yield each different stack of a thread with its own time between two moments."""
    nodes: dict[tuple[int, int], int] = {}
    parents: list[tuple[int, int]] = []
    times: list[float] = []
    stack: list[tuple[float, int]] = []
    for at in ranges.in_order():
        start, end = max(ranges.starts[at], first), min(ranges.ends[at], last)
        if start >= end:
            continue
        while stack and stack[-1][0] <= start:
            stack.pop()
        above = stack[-1][1] if stack else -1
        key = (above, ranges.numbers[at])
        node = nodes.setdefault(key, len(nodes))
        if node == len(times):
            parents.append(key)
            times.append(0.0)
        if stack:
            end = min(end, stack[-1][0])
            times[above] -= end - start
        times[node] += end - start
        stack.append((end, node))
    for node, time in enumerate(times):
        found, above = [], node
        while above >= 0:
            above, number = parents[above]
            found.append(names[number])
        yield tuple(found), time
