"""What keeps the steps of a script from being faster, in a word."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from torchlint.harness.trace import Trace

_MUCH: Final = 0.25
"""The share of a step spent waiting for data, or copying it, from which on that counts."""
_AHEAD: Final = 0.5
"""Steps by which the host must be ahead of a device that is never without work."""
_WHOLE: Final = 0.9
"""The same where the host waits in each step, and has launched no more than that step."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a step waits for most: data, copies, reads of the device, launches, or a processor."""

    by: Literal["data", "copies", "reads", "launches", "device", "processor"]
    share: float | None = None
    """The share of a step, where it was measured."""
    reached: float | None = None
    """The operations of a step in a second, as a share of those of a large product."""


def bound(timed: list[Trace], watched: Trace | None, reads: float | None) -> Bound | None:
    """Return what the steps of timed runs wait for, None where that was not measured.

    `watched` is the run that measured copies and operations, and `reads` the syncs in a step.
    """
    runs = [trace for trace in timed if trace.durations and trace.ending != "failed"]
    if not runs:
        return None
    waits = [trace.waited / sum(trace.durations) for trace in runs if trace.waited is not None]
    if waits and median(waits) >= _MUCH:
        return Bound("data", median(waits))
    if runs[0].device == "cpu":
        return Bound("processor")
    step = median(sum(trace.durations) / len(trace.durations) for trace in runs)
    copying = (watched.copying or 0.0) / step if watched is not None else 0.0
    if copying >= _MUCH:
        return Bound("copies", copying)
    ahead = [trace.drained / step for trace in runs if trace.drained is not None]
    if not ahead:
        return None
    if median(ahead) >= (_WHOLE if reads else _AHEAD):
        return Bound("device", reached=_reached(watched, step))
    return Bound("reads" if reads else "launches")


def _reached(watched: Trace | None, step: float) -> float | None:
    if watched is None or not watched.flops or not watched.peak_flops:
        return None
    return watched.flops / step / watched.peak_flops
