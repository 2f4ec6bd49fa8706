"""Which values of a setting are worth a run, and which of those that were run is the knee."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from torchlint.harness.tuningrate import Rate

__all__ = ["TOLERANCE", "doubling", "knee_of", "next_between", "undecided"]

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


def knee_of(rates: Mapping[int, Rate], tolerance: float) -> int | None:
    """Give the smallest value that is as good as the best, None where none was measured."""
    if not rates:
        return None
    enough = max(rate.value for rate in rates.values()) * (1 - tolerance)
    return min(value for value, rate in rates.items() if rate.value >= enough)


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
    """Give the values of which the intervals do not say whether they are as good as the best."""
    knee = knee_of(rates, tolerance)
    if knee is None or len(rates) < 2:
        return []
    best = max(rates, key=lambda value: rates[value].value)
    enough = rates[best].value * (1 - tolerance)
    open_ = [
        value
        for value, rate in rates.items()
        if value <= knee and value != best and rate.low < enough < rate.high
    ]
    return [*open_, best] if open_ else []
