"""Speed by processor time, which a busy machine disturbs less than the time on the wall."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from statistics import median
from typing import Final

from torchlint.harness.judging.statistics import Interval, Speedup, least, noise_band, speedup
from torchlint.harness.judging.verdict import Verdict
from torchlint.harness.runs.crowd import is_crowded
from torchlint.harness.trace import Trace

Runs = list[list[Trace]]

_MATTERS: Final = 0.05
"""The difference that the interval must exclude before processor time decides."""
_RESTS: Final = 0.05
"""The share of a window up to which a script counts as computing all the time."""


def work_saved(before: Runs, after: Runs) -> Speedup | None:
    """Return the ratio of processor time per step, None where the two cannot be compared.

    Both sides must run on the CPU alone, with the same number of threads and of workers.
    """
    traces = [trace for rounds in (before, after) for runs in rounds for trace in runs]
    alike = len({(trace.threads, trace.helpers) for trace in traces}) == 1
    if not alike or not _have_work(before, after):
        return None
    return speedup(_works(before), _works(after), least)


def work_noise(original: Runs) -> Interval | None:
    """Return the noise of the original's processor time, None where it was not measured."""
    paired = [runs for runs in original if len(runs) > 1]
    if not paired or not _have_work(paired):
        return None
    return noise_band(_works(paired), least)


def judge_work(
    wall: Speedup, work: Speedup | None, noise: Interval | None, *, restless: bool = False
) -> Verdict:
    """Return the verdict by processor time, UNSURE where the time on the wall contradicts it.

    Equal work means equal time only for scripts that never rest, `restless`.
    """
    if work is None or noise is None:
        return Verdict.UNSURE
    if work.low > max(1 + _MATTERS, noise.high) and wall.ratio > 1:
        return Verdict.FASTER
    if work.high < min(1 / (1 + _MATTERS), noise.low) and wall.ratio < 1:
        return Verdict.SLOWER
    even = max(work.high - 1, 1 - work.low) <= _MATTERS
    if even and restless and wall.low <= 1 + _MATTERS and wall.high >= 1 - _MATTERS:
        return Verdict.SAME
    return Verdict.UNSURE


def never_rests(*sides: Runs) -> bool:
    """Return whether the script's thread always has something to compute."""
    return all(median(map(_share_at_rest, chain(*rounds))) <= _RESTS for rounds in sides)


def crowd(traces: Iterable[Trace]) -> tuple[float, float] | None:
    """Return the processors that others used and that were free, where others disturbed a run."""
    seen = [trace for trace in traces if trace.others is not None and trace.free is not None]
    others = median([trace.others or 0.0 for trace in seen] or [0.0])
    free = median([trace.free or 0.0 for trace in seen] or [0.0])
    return (others, free) if is_crowded(others, free) else None


def _have_work(*sides: Runs) -> bool:
    """Return whether every run is alone on the CPU, and has the work of as many steps."""
    traces = [trace for side in sides for runs in side for trace in runs]
    alone = all(trace.device == "cpu" and not trace.joined for trace in traces)
    counts = {len(trace.work) if sum(trace.work) > 0 else 0 for trace in traces}
    return alone and len(counts) == 1 and counts != {0}


def _works(rounds: Runs) -> list[list[tuple[float, ...]]]:
    return [[trace.work for trace in runs] for runs in rounds]


def _share_at_rest(trace: Trace) -> float:
    return 1.0 if trace.at_rest is None else trace.at_rest / sum(trace.durations)
