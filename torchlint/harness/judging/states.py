"""What the driver told of a device at both ends of each window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from torchlint.harness.judging.doubt import Doubt
from torchlint.harness.trace import Trace

_MOVED: Final = 0.05
"""The share by which a clock may change within a window."""


def throttled(trace: Trace) -> tuple[str, ...]:
    """Return what slowed a device down at either end of the window."""
    reasons = (reason for state in _states(trace) for reason in state.get("throttled") or ())
    return tuple(dict.fromkeys(reasons))


def state_doubts(timed: Iterable[Trace], repeated: int) -> list[Doubt]:
    """Return doubts about devices that were slowed down, shared, or changed their clock.

    `repeated` runs were made again, since a device was slowed down.
    """
    traces = list(timed)
    doubts = []
    reasons = dict.fromkeys(reason for trace in traces for reason in throttled(trace))
    if reasons or repeated:
        doubts.append(Doubt.throttled(tuple(reasons), repeated))
    # Ranks of one script may share a device.
    alone = [trace for trace in traces if not trace.joined]
    others = max((_others(trace) for trace in alone), default=0)
    if others:
        doubts.append(Doubt.shared_device(others))
    moved = [clocks for trace in traces for clocks in _clocks(trace)]
    worst = max(moved, key=lambda clocks: abs(clocks[1] - clocks[0]), default=(0, 0))
    if abs(worst[1] - worst[0]) > _MOVED * max(worst):
        doubts.append(Doubt.clock_moved(*worst))
    return doubts


def _states(trace: Trace) -> list[Any]:
    return [state for end in trace.states for state in end]


def _others(trace: Trace) -> int:
    return max((state.get("other_processes") or 0 for state in _states(trace)), default=0)


def _clocks(trace: Trace) -> list[tuple[int, int]]:
    """Return the clock of each device at both ends."""
    if len(trace.states) != 2:
        return []
    ends = ([state.get("sm_clock_mhz") or 0 for state in end] for end in trace.states)
    return [pair for pair in zip(*ends, strict=True) if all(pair)]
