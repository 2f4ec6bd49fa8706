"""The values of a setting to try next, and the smallest that is good enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from torchlint.harness.tuning.rate import Rate

TOLERANCE: Final = 0.05
"""The relative difference up to which a value counts as good as the best."""

_FINE: Final = 4
"""A gap below the knee that is a smaller part of it than this is not searched."""

_IN_VAIN: Final = 2
"""Doublings without a gain after which the search stops."""


def doubling(
    first: Sequence[int], most: int, better: Callable[[int], bool | None]
) -> Iterator[int]:
    """Yield the first values and then doubled ones, until these bring no gain.

    `better` is called for each value after its run: it returns whether the value is the best so
    far by more than the tolerance, or None where it failed, which ends the search.
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
    """Return whether a value is within the tolerance of the best, or not shown to be worse."""
    best = max(rates.values(), key=lambda rate: rate.value)
    rate = rates[value]
    return rate.value >= best.value * (1 - tolerance) or rate.high >= best.low


def knee_of(rates: Mapping[int, Rate], tolerance: float) -> int | None:
    """Return the smallest value that is as good as the best, None where none was measured."""
    return min((value for value in rates if as_good(rates, value, tolerance)), default=None)


def cheaper(rates: Mapping[int, Rate], current: int, tolerance: float) -> int | None:
    """Return the smallest value below the current one that is as good as the best.

    Its own measurement must show that, since a working setting is not given up on a guess.
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
    """Return the value that halves the gap below the knee, None where there is no gap."""
    knee = knee_of(rates, tolerance)
    if knee is None:
        return None
    below = max((value for value in tried if value < knee), default=knee)
    if knee - below <= max(1, knee // _FINE):
        return None
    return (below + knee + 1) // 2


def undecided(rates: Mapping[int, Rate], tolerance: float) -> list[int]:
    """Return the knee and the best where their intervals do not show them equally good."""
    knee = knee_of(rates, tolerance)
    if knee is None:
        return []
    best = max(rates, key=lambda value: rates[value].value)
    is_open = knee != best and rates[knee].low < rates[best].value * (1 - tolerance)
    return [knee, best] if is_open else []
