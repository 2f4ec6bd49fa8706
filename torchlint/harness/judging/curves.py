"""Loss curves of several seeds, compared as distributions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Final, Literal

from torchlint.harness.trace import Trace

SEEDS: Final = 4
"""The number of seeds for each side."""

_PARTS: Final = 3
"""Parts of the window whose mean losses are compared."""
_FAR: Final = (5.96, 12.9)
"""Standard errors by which equal sides of four seeds differ once in a thousand comparisons.

The first is for all runs, the second for differences between runs of one seed, which are sharper
where both sides begin with the same weights. They are quantiles of Student's t for six and for
three degrees of freedom.
"""
_SURE: Final = (2.97, 4.18)
"""Standard errors that cover the difference in 97.5 of 100 cases, by both measures."""
_ALIKE: Final = 0.1
"""The difference that equal curves may have, as a share of the total decrease of the loss.

With a share of the loss itself, any training that changes little within the window would pass.
"""


def compare_curves(
    before: Sequence[Trace], after: Sequence[Trace]
) -> Literal["close", "different", "not-compared"]:
    """Compare every part of two sets of loss curves within the variation of their seeds.

    They differ where one side takes more backward passes per step than the other.
    """
    sides = [[_parts(trace) for trace in traces] for traces in (before, after)]
    if any(len(parts) < _PARTS for side in sides for parts in side):
        return "not-compared"
    if {_passes(trace) for trace in before} != {_passes(trace) for trace in after}:
        return "different"
    fall = abs(fmean(parts[0] - parts[-1] for parts in sides[0]))
    words = {
        _compare([parts[at] for parts in sides[0]], [parts[at] for parts in sides[1]], fall)
        for at in range(_PARTS)
    }
    if "different" in words:
        return "different"
    return "close" if words == {"close"} else "not-compared"


def _passes(trace: Trace) -> int:
    """Return the most common number of backward passes per step."""
    counts = Counter(Counter(trace.loss_steps).values())
    return max(counts, key=lambda count: counts[count], default=0)


def _compare(
    before: list[float], after: list[float], fall: float
) -> Literal["close", "different", "not-compared"]:
    finite = [all(map(math.isfinite, side)) for side in (before, after)]
    if not all(finite):
        return "different" if any(finite) else "not-compared"
    apart = abs(fmean(before) - fmean(after))
    paired = stdev(second - first for first, second in zip(before, after, strict=True))
    errors = [
        error / math.sqrt(len(before))
        for error in (math.hypot(stdev(before), stdev(after)), paired)
    ]
    least = 0.01 * fmean(map(abs, before))
    if any(apart > far * error + least for far, error in zip(_FAR, errors, strict=True)):
        return "different"
    bounds = [apart + sure * error for sure, error in zip(_SURE, errors, strict=True)]
    return "close" if min(bounds) <= _ALIKE * fall else "not-compared"


def _parts(trace: Trace) -> list[float]:
    """Return the mean losses of the parts of the window, none where it is too short."""
    by_step: dict[int, list[float]] = defaultdict(list)
    for loss, step in zip(trace.losses, trace.loss_steps, strict=True):
        by_step[step].append(loss)
    steps = [fmean(by_step[step]) for step in sorted(by_step)]
    length = len(steps) // _PARTS
    if not length:
        return []
    return [fmean(steps[at * length : (at + 1) * length]) for at in range(_PARTS)]
