"""Statistics of step times: ratio, interval and noise band, in plain Python."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

Rounds = Sequence[Sequence[Sequence[float]]]
"""Step times: rounds, each with the runs of one side, each with its steps."""

Runs = Sequence[Sequence[float]]
Summary = Callable[[Runs, Sequence[int]], float]
"""Returns the time of a step from the chosen steps of several runs."""

_DRAWS: Final = 1000
_TAIL: Final = 0.025
_LONG: Final = 3.0
"""A step this many times longer than usual in every run does extra work (an evaluation)."""

_LEVELED: Final = 3
"""The fewest rounds whose drift is taken out."""
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


def usual(runs: Runs, steps: Sequence[int]) -> float:
    """Return the median over runs of each run's mean."""
    return median(sum(map(run.__getitem__, steps)) / len(steps) for run in runs)


def least(runs: Runs, steps: Sequence[int]) -> float:
    """Return the mean over steps of the least time that a run took for each.

    Every run does the same in the same step, and what disturbs it only ever adds time.
    """
    return sum(min(run[at] for run in runs) for at in steps) / len(steps)


def level(*sides: Rounds) -> tuple[Rounds, ...]:
    """Return the rounds of all sides without the drift of the machine from round to round.

    Rounds are scaled so that the median run of each takes the same time. Two are left as they are:
    if they agreed by chance, nothing would show it.
    """
    paces = [
        median(sum(run) / len(run) for runs in found for run in runs)
        for found in zip(*sides, strict=True)
    ]
    if len(paces) < _LEVELED:
        return sides
    factors = [median(paces) / pace for pace in paces]
    return tuple(list(map(_scaled, rounds, factors)) for rounds in sides)


def step_time(rounds: Rounds) -> float:
    """Return the seconds of a step: the median over runs of each run's mean."""
    return _of_all(usual, rounds)


def speedup(before: Rounds, after: Rounds, of: Summary = usual, seed: int = 0) -> Speedup:
    """Return the ratio of step times with a bootstrap interval over rounds and steps.

    Steps of one process are not independent, so rounds are drawn first, with the runs of both
    sides, and then blocks of steps, the same ones for every run. Draws of a few rounds lie closer
    together than rounds do, by a factor that is known.
    """
    draw = random.Random(seed)
    drawn_steps = _step_drawer([before, after], draw)
    ratios = []
    for _ in range(_DRAWS):
        steps = drawn_steps()
        rounds = [draw.randrange(len(before)) for _ in before]
        sides = ([run for at in rounds for run in side[at]] for side in (before, after))
        first, second = (of(runs, steps) for runs in sides)
        ratios.append(first / second)
    ratio = _of_all(of, before) / _of_all(of, after)
    count = len(before)
    wider = math.sqrt(count / (count - 1)) if count > 1 else 1.0
    low, high = (ratio * (end / ratio) ** wider for end in _quantiles(ratios))
    return Speedup(ratio, low, high)


def noise_band(original: Rounds, of: Summary = usual, seed: int = 0) -> Interval:
    """Return the interval of the original against itself, its runs split at random.

    Each side gets two runs a round, as a variant does, where there are enough.
    """
    draw = random.Random(seed)
    drawn_steps = _step_drawer([original], draw)
    ratios = []
    for _ in range(_DRAWS):
        steps = drawn_steps()
        sides: tuple[list[Sequence[float]], list[Sequence[float]]] = ([], [])
        for _ in original:
            runs = list(original[draw.randrange(len(original))])
            draw.shuffle(runs)
            for at, run in enumerate(runs[: 4 if len(runs) >= 4 else 2]):
                sides[at % 2].append(run)
        ratios.append(of(sides[0], steps) / of(sides[1], steps))
    low, high = _quantiles(ratios)
    return Interval(min(low, 1 - _LEAST_NOISE), max(high, 1 + _LEAST_NOISE))


def share(waited: Sequence[float], rounds: Rounds) -> float:
    """Return the share of time spent waiting, as the median over runs."""
    totals = [sum(run) for runs in rounds for run in runs]
    return median(wait / total for wait, total in zip(waited, totals, strict=True))


def _of_all(of: Summary, rounds: Rounds) -> float:
    runs = [run for group in rounds for run in group]
    return of(runs, range(len(runs[0])))


def _scaled(runs: Runs, factor: float) -> Runs:
    return [[time * factor for time in run] for run in runs]


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
