"""What a step is made of: one step to look at, and what its phases take on average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final, get_args

from torchlint.harness.trace import Phase, PhaseName, Trace

__all__ = ["Step", "usual_step"]

_LONG: Final = 3.0
"""A step so many times the usual does work of its own (an evaluation, the end of an epoch)."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step as most are."""

    seconds: float
    phases: tuple[Phase, ...]
    """In seconds since the step began; between them is what no hook sees."""
    means: tuple[tuple[str, float], ...]
    """Seconds of each phase, and of the rest, on average over the usual steps of the window."""
    on_device: bool
    """Whether the device's clock was read, not the host's."""


def usual_step(trace: Trace | None) -> Step | None:
    """Give the step of a window whose time is the median, None where none was looked at."""
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
        on_device=trace.device == "cuda",
    )


def _steps(durations: Sequence[float], phases: Sequence[Phase]) -> list[list[Phase]]:
    """Deal the phases to the steps they lie in, cut where a step ends, in its own time."""
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
