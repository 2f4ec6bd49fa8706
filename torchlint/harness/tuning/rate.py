"""Arithmetic on the pace of runs: samples a second, with an interval, in plain Python."""

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

__all__ = ["Rate", "Timed", "noise_of", "rate_of", "steady_rate"]

_DRAWS: Final = 400
_TAIL: Final = 0.025
_LEAST_NOISE: Final = 0.01
"""Two processes differ by so much for reasons that no number of runs shows."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Samples a second, and where the figure lies with 95 % confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Timed:
    """A run, and when it was: its place among all runs."""

    turn: int
    pace: Pace
    warmup: int

    @cached_property
    def window(self) -> Window:
        """The steps that count."""
        return self.pace.after(self.warmup)


def steady_rate(run: Timed, order: Sequence[int] | None = None) -> float:
    """Give the samples a second of one run, the begin of each pass included.

    Steps in which a pass begins are rare and long: what the workers' start costs is spread over
    the steps of a whole pass, however many of these the window holds. `order` chooses the steps.
    """
    window = run.window
    steps = range(len(window.seconds)) if order is None else order
    seconds = math.fsum(window.seconds[at] for at in steps)
    samples = sum(window.samples[at] for at in steps)
    return samples / (seconds + _opening(run) * samples) if seconds else 0.0


def _opening(run: Timed) -> float:
    """Give the seconds that beginning a pass costs each sample."""
    pace = run.pace
    trained = pace.loaders[pace.trained_on] if pace.trained_on is not None else None
    if trained is None or trained.persistent_workers or not trained.length or not pace.opening:
        return 0.0
    usual = fmean(run.window.waits)
    return max(0.0, median(pace.opening) - usual) / trained.length


def noise_of(runs: Sequence[Timed]) -> float:
    """Give how far the script as it is strays from itself, drift taken off."""
    rates = [steady_rate(run) for run in runs]
    strays = [
        abs(rates[at] / _between(runs, rates, runs[at].turn, without=at) - 1)
        for at in range(1, len(runs) - 1)
    ]
    if not strays and len(rates) > 1:
        strays = [abs(rates[1] / rates[0] - 1) / 2]
    return max(_LEAST_NOISE, median(strays) if strays else 0.0)


def rate_of(runs: Sequence[Timed], original: Sequence[Timed], seed: int = 0) -> Rate:
    """Give the rate of runs of one value, seen against the runs of the original around each.

    What slows the machine for a while slows the original beside it as well, and cancels.
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
    runs: Sequence[Timed], rates: Sequence[float], turn: int, without: int | None = None
) -> float:
    """Give the rate of the original at a turn, drawn as a line between its runs around it."""
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


def _blocks(run: Timed, draw: random.Random) -> list[int]:
    """Draw steps in blocks: neighbours are no independent draws."""
    count = len(run.window.seconds)
    length = max(1, round(count ** (1 / 2)))
    drawn: list[int] = []
    while len(drawn) < count:
        start = draw.randrange(count)
        drawn += [(start + more) % count for more in range(length)]
    return drawn[:count]
