"""Which values of a setting are worth a run, and which of those that were run is the knee."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from torchlint.harness.tuning.rate import Rate

__all__ = ["TOLERANCE", "as_good", "cheaper", "doubling", "knee_of", "next_between", "undecided"]

TOLERANCE: Final = 0.05
"""A value within so much of the best is as good as the best."""

_FINE: Final = 4
"""A gap below the knee of so small a part of it is not looked into."""

_IN_VAIN: Final = 2
"""Doublings that bring nothing before the search stops."""


def doubling(
    first: Sequence[int], most: int, better: Callable[[int], bool | None]
) -> Iterator[int]:
    """Yield the first values and then doubled ones, until these bring nothing more.

    `better` is asked about each value once it was run: whether it is the best so far by more than
    the tolerance, None where it failed, which ends the search.
    """
    value = 0
    in_vain = 0
    for value in first:
        yield value
        if better(value) is None and value:
            return
    while 0 < value * 2 <= most and in_vain < _IN_VAIN:
        value *= 2
        yield value
        found = better(value)
        if found is None:
            return
        in_vain = 0 if found else in_vain + 1


def as_good(rates: Mapping[int, Rate], value: int, tolerance: float) -> bool:
    """Whether a value is within the tolerance of the best, or not shown to be worse."""
    best = max(rates.values(), key=lambda rate: rate.value)
    rate = rates[value]
    return rate.value >= best.value * (1 - tolerance) or rate.high >= best.low


def knee_of(rates: Mapping[int, Rate], tolerance: float) -> int | None:
    """Give the smallest value that is as good as the best, None where none was measured."""
    return min((value for value in rates if as_good(rates, value, tolerance)), default=None)


def cheaper(rates: Mapping[int, Rate], current: int, tolerance: float) -> int | None:
    """Give the smallest value below the one in use that is as good as the best.

    Its own figure must bear that out: a guess is no reason to take from a user what works.
    """
    least = rates[current].value * (1 - tolerance)
    return min(
        (
            value
            for value, rate in rates.items()
            if value < current and as_good(rates, value, tolerance) and rate.value >= least
        ),
        default=None,
    )


def next_between(rates: Mapping[int, Rate], tried: Sequence[int], tolerance: float) -> int | None:
    """Give the value that halves the gap below the knee, None where there is no gap."""
    knee = knee_of(rates, tolerance)
    if knee is None:
        return None
    below = max((value for value in tried if value < knee), default=knee)
    if knee - below <= max(1, knee // _FINE):
        return None
    return (below + knee + 1) // 2


def undecided(rates: Mapping[int, Rate], tolerance: float) -> list[int]:
    """Give the knee and the best where their intervals do not say that they are equally good."""
    knee = knee_of(rates, tolerance)
    if knee is None:
        return []
    best = max(rates, key=lambda value: rates[value].value)
    is_open = knee != best and rates[knee].low < rates[best].value * (1 - tolerance)
    return [knee, best] if is_open else []
