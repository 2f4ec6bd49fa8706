"""The phases of a step: one typical step, and mean durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final, Literal, get_args

from torchlint.harness.trace import Phase, PhaseName, Trace

_LONG: Final = 3.0
"""A step this many times longer than usual does extra work (an evaluation, the end of an epoch)."""
_MUCH: Final = 0.25
"""The share of a step spent waiting for data, or copying it, from which on that counts."""
_AHEAD: Final = 0.5
"""Steps by which the host must be ahead of a device that is never without work."""
_WHOLE: Final = 0.9
"""The same where the host waits in each step, and has launched no more than that step."""


@dataclass(frozen=True, slots=True)
class Step:
    """A typical step."""

    seconds: float
    phases: tuple[Phase, ...]
    """In seconds since the step began; no hook sees what lies between them."""
    means: tuple[tuple[str, float], ...]
    """Mean seconds of each phase, and of the rest, over the usual steps of the window."""
    on_device: bool
    """Whether the times come from the device's clock, not the host's."""


def usual_step(trace: Trace | None) -> Step | None:
    """Return the step of median duration, None where no phases were measured."""
    if trace is None or trace.ending == "failed" or not trace.durations:
        return None
    steps = _steps(trace.durations, trace.phases)
    usual = median(trace.durations)
    numbers = [at for at, time in enumerate(trace.durations) if time <= _LONG * usual]
    shown = min(numbers, key=lambda at: abs(trace.durations[at] - usual))
    means = {
        name: fmean(sum(p.end - p.start for p in steps[at] if p.name == name) for at in numbers)
        for name in get_args(PhaseName)
    }
    whole = fmean(trace.durations[at] for at in numbers)
    means["rest"] = max(0.0, whole - sum(means.values()))
    return Step(
        seconds=trace.durations[shown],
        phases=tuple(steps[shown]),
        means=tuple(means.items()),
        on_device=trace.device_clock,
    )


def _steps(durations: Sequence[float], phases: Sequence[Phase]) -> list[list[Phase]]:
    """Assign phases to the steps that contain them, cut at the end of a step."""
    ordered = sorted(phases, key=lambda phase: phase.start)
    steps = []
    start = 0.0
    for duration in durations:
        end = start + duration
        steps.append(
            [
                Phase(each.name, max(each.start, start) - start, min(each.end, end) - start)
                for each in ordered
                if each.start < end and each.end > start
            ]
        )
        start = end
    return steps


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
