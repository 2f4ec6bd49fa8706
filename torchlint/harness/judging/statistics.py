"""Statistics of step times: ratio, interval and noise band, in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

__all__ = ["Interval", "Rounds", "Speedup", "noise_band", "share", "speedup", "step_time"]

Rounds = Sequence[Sequence[Sequence[float]]]
"""Step times: rounds, each with the runs of one side, each with its steps."""

_DRAWS: Final = 1000
_TAIL: Final = 0.025
_LONG: Final = 3.0
"""A step this many times longer than usual in every run does extra work (an evaluation)."""

_LEAST_NOISE: Final = 0.01
"""The difference between two processes that no number of rounds removes."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio's 95 % confidence interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Speedup:
    """The original's step time over the fixed one's, with its interval."""

    ratio: float
    low: float
    high: float


def step_time(rounds: Rounds) -> float:
    """Return the seconds of a step: the median over runs of each run's mean."""
    return median(fmean(run) for runs in rounds for run in runs)


def speedup(before: Rounds, after: Rounds, seed: int = 0) -> Speedup:
    """Return the ratio of medians with a bootstrap interval over rounds and steps.

    Steps of one process are not independent, so rounds are drawn first, with the runs of both
    sides, and then blocks of steps, the same ones for every run.
    """
    draw = random.Random(seed)
    drawn_steps = _step_drawer([before, after], draw)
    ratios = []
    for _ in range(_DRAWS):
        steps = drawn_steps()
        rounds = [draw.randrange(len(before)) for _ in before]
        ratios.append(_time(before, rounds, steps) / _time(after, rounds, steps))
    low, high = _quantiles(ratios)
    return Speedup(step_time(before) / step_time(after), low, high)


def noise_band(original: Rounds, seed: int = 0) -> Interval:
    """Return the interval of the original against itself, its runs split at random.

    Each side gets two runs a round, as a variant does, where there are enough.
    """
    draw = random.Random(seed)
    drawn_steps = _step_drawer([original], draw)
    ratios = []
    for _ in range(_DRAWS):
        steps = drawn_steps()
        sides: tuple[list[float], list[float]] = ([], [])
        for _ in original:
            runs = list(original[draw.randrange(len(original))])
            draw.shuffle(runs)
            for at, run in enumerate(runs[: 4 if len(runs) >= 4 else 2]):
                sides[at % 2].append(_mean(run, steps))
        ratios.append(median(sides[0]) / median(sides[1]))
    low, high = _quantiles(ratios)
    return Interval(min(low, 1 - _LEAST_NOISE), max(high, 1 + _LEAST_NOISE))


def share(waited: Sequence[float], rounds: Rounds) -> float:
    """Return the share of time spent waiting, as the median over runs."""
    totals = [sum(run) for runs in rounds for run in runs]
    return median(wait / total for wait, total in zip(waited, totals, strict=True))


def _time(rounds: Rounds, chosen: Sequence[int], steps: Sequence[int]) -> float:
    return median(_mean(run, steps) for index in chosen for run in rounds[index])


def _mean(run: Sequence[float], steps: Sequence[int]) -> float:
    return sum(map(run.__getitem__, steps)) / len(steps)


def _step_drawer(sides: Sequence[Rounds], draw: random.Random) -> Callable[[], list[int]]:
    """Return a function that draws step indices: long steps are kept, the others come in blocks.

    Work that a side does once in the window is kept, since each of its runs does it.
    """
    long: set[int] = set()
    for rounds in sides:
        runs = [run for group in rounds for run in group]
        usual = [median(times) for times in zip(*runs, strict=True)]
        limit = _LONG * median(usual)
        long |= {at for at, time in enumerate(usual) if time > limit}
    rest = [at for at in range(len(usual)) if at not in long]
    length = max(1, round(len(rest) ** (1 / 3)))

    def steps() -> list[int]:
        drawn: list[int] = []
        while len(drawn) < len(rest):
            start = draw.randrange(len(rest))
            drawn += [rest[(start + more) % len(rest)] for more in range(length)]
        return [*sorted(long), *drawn[: len(rest)]]

    return steps


def _quantiles(ratios: list[float]) -> tuple[float, float]:
    ratios.sort()
    tail = int(len(ratios) * _TAIL)
    return ratios[tail], ratios[-1 - tail]
