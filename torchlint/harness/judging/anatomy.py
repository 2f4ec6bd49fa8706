"""The phases of a step: one typical step, and mean durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final, get_args

from torchlint.harness.trace import Phase, PhaseName, Trace

_LONG: Final = 3.0
"""A step this many times longer than usual does extra work (an evaluation, the end of an epoch)."""


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
