"""Statistics of throughput: samples per second with an interval, in plain Python."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Final

from torchlint.harness.pace import Pace, Window

_DRAWS: Final = 400
_TAIL: Final = 0.025
_LEAST_NOISE: Final = 0.01
"""The difference between two processes that no number of runs removes."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Samples per second, with a 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TimedRun:
    """A run, and its place in the order of all runs."""

    turn: int
    pace: Pace
    warmup: int

    @cached_property
    def window(self) -> Window:
        """The measured steps."""
        return self.pace.after(self.warmup)


def steady_rate(run: TimedRun, order: Sequence[int] | None = None) -> float:
    """Return the samples per second of one run, including the start of each pass.

    Steps in which a pass begins are rare and long, so the cost of starting workers is spread
    over a whole pass, however many of these the window holds. `order` chooses the steps.
    """
    window = run.window
    steps = range(len(window.seconds)) if order is None else order
    seconds = math.fsum(window.seconds[at] for at in steps)
    samples = sum(window.samples[at] for at in steps)
    return samples / (seconds + _opening(run) * samples) if seconds else 0.0


def _opening(run: TimedRun) -> float:
    """Return the seconds that starting a pass costs per sample."""
    pace = run.pace
    trained = pace.loaders[pace.trained_on] if pace.trained_on is not None else None
    if trained is None or trained.persistent_workers or not trained.length or not pace.opening:
        return 0.0
    usual = fmean(run.window.waits)
    return max(0.0, median(pace.opening) - usual) / trained.length


def noise_of(runs: Sequence[TimedRun]) -> float:
    """Return the noise of the original script, without drift."""
    rates = [steady_rate(run) for run in runs]
    strays = [
        abs(rates[at] / _between(runs, rates, runs[at].turn, without=at) - 1)
        for at in range(1, len(runs) - 1)
    ]
    if not strays and len(rates) > 1:
        strays = [abs(rates[1] / rates[0] - 1) / 2]
    return max(_LEAST_NOISE, median(strays) if strays else 0.0)


def rate_of(runs: Sequence[TimedRun], original: Sequence[TimedRun], seed: int = 0) -> Rate:
    """Return the rate of runs of one value, relative to the nearest runs of the original.

    Whatever slows the machine for a while slows the original too, and cancels out.
    """
    draw = random.Random(seed)
    rates = [steady_rate(run) for run in original]
    usual = median(rates)
    drift = [usual / _between(original, rates, run.turn) for run in runs]
    value = median(steady_rate(run) * by for run, by in zip(runs, drift, strict=True))
    found = []
    for _ in range(_DRAWS):
        chosen = [draw.randrange(len(runs)) for _ in runs]
        found.append(
            median(steady_rate(runs[at], _blocks(runs[at], draw)) * drift[at] for at in chosen)
        )
    found.sort()
    tail = int(_DRAWS * _TAIL)
    noise = noise_of(original) / math.sqrt(len(runs))
    low = min(value, found[tail]) * (1 - noise)
    return Rate(value, low, max(value, found[-1 - tail]) * (1 + noise))


def _between(
    runs: Sequence[TimedRun], rates: Sequence[float], turn: int, without: int | None = None
) -> float:
    """Return the original's rate at a turn, interpolated between its runs around it."""
    points = [
        (run.turn, rate)
        for at, (run, rate) in enumerate(zip(runs, rates, strict=True))
        if at != without
    ]
    after = bisect_right([point[0] for point in points], turn)
    if after == 0 or after == len(points) or points[after - 1][0] == turn:
        return points[max(0, after - 1)][1]
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (turn - left) / (right - left)


def _blocks(run: TimedRun, draw: random.Random) -> list[int]:
    """Draw steps in blocks, since neighbors are not independent."""
    count = len(run.window.seconds)
    length = max(1, round(count ** (1 / 2)))
    drawn: list[int] = []
    while len(drawn) < count:
        start = draw.randrange(count)
        drawn += [(start + more) % count for more in range(length)]
    return drawn[:count]
