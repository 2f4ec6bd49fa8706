"""The steps that are timed: where they begin, and how many they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

QUICK_RUNS: Final = 14
"""Runs that one variant needs, including those that compare its numbers."""
_QUICK_STEPS: Final = 3
"""The least number of steps in a window, however slow they are."""
_QUICK_SHARE: Final = 0.25
"""The least duration of a short window, as a share of the time that a run takes to start."""
_WARM: Final = 1.0
"""Seconds of work after which the clock of a device has settled."""
_UNEVEN: Final = 0.05
"""The share by which the halves of a window may differ."""


def short_window(
    warmup: int, steps: int, start: float, pace: float, budget: float
) -> tuple[int, int]:
    """Return a shorter warm-up and window where steps are slow compared with the start of a run."""
    fitting = int(max(budget / QUICK_RUNS - start, start * _QUICK_SHARE) / pace)
    warmup = max(1, min(warmup, fitting // 4))
    return warmup, max(_QUICK_STEPS, min(steps, fitting - warmup))


def warm_steps(warmup: int, pace: float, budget: float) -> int:
    """Return the steps after which a device has reached its clock, at least `warmup`."""
    seconds = min(_WARM, budget / QUICK_RUNS / 4)
    return max(warmup, math.ceil(seconds / pace))


def is_even(durations: Sequence[float]) -> bool:
    """Return whether steps take as long at the end of a window as at its start."""
    middle = len(durations) // 2
    first, last = median(durations[:middle]), median(durations[middle:])
    return abs(first - last) <= _UNEVEN * last
