"""What keeps the steps of a script from being faster, in a word."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from torchlint.harness.trace import Trace

_DATA: Final = 0.25
"""The share of a step spent waiting for data from which on that counts."""
_AHEAD: Final = 0.5
"""Steps by which the host must be ahead of a device that is never without work."""
_WHOLE: Final = 0.9
"""The same where the host waits in each step, and has launched no more than that step."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a step waits for most: data, a read of the device, launches, the device, or the CPU."""

    by: Literal["data", "reads", "launches", "device", "processor"]
    share: float | None = None
    """The share of a step, where it was measured."""


def bound(timed: list[Trace], syncs_per_step: float | None) -> Bound | None:
    """Return what the steps of timed runs wait for, None where that was not measured."""
    runs = [trace for trace in timed if trace.durations and trace.ending != "failed"]
    if not runs:
        return None
    waits = [trace.waited / sum(trace.durations) for trace in runs if trace.waited is not None]
    if waits and median(waits) >= _DATA:
        return Bound("data", median(waits))
    if runs[0].device == "cpu":
        return Bound("processor")
    ahead = [
        trace.drained * len(trace.durations) / sum(trace.durations)
        for trace in runs
        if trace.drained is not None
    ]
    if not ahead:
        return None
    if median(ahead) >= (_WHOLE if syncs_per_step else _AHEAD):
        return Bound("device")
    return Bound("reads" if syncs_per_step else "launches")
