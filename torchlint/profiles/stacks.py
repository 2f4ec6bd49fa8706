"""What a thread of the host was doing, from its nested ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchlint.profiles.recording import Ranges

Stack = tuple[str, ...]
"""Names of nested ranges, the innermost first."""


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
