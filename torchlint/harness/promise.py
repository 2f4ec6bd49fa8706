"""Whether a fix kept the promise of its class: losses and parameters, compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from torchlint.finding import Safety
from torchlint.harness.doubt import Doubt
from torchlint.harness.trace import Trace

__all__ = ["Comparison", "Word", "compare"]

Word = Literal["equal", "close", "different", "not-compared"]

Method = Literal["as-is", "aligned", "seeds", "output"]
"""How numbers were compared.

Run as they are; with weights, batches and seeds of the original given to both; over several seeds;
or by what was printed.
"""

RTOL: Final = 1e-5
ATOL: Final = 1e-7
EARLY: Final = 10
"""Steps in which rounding has not yet had the time to grow."""
GROWTH: Final = 100
"""How far rounding may have grown later, and in the parameters."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the numbers of the fixed script are, seen from the original's."""

    word: Word
    kept: bool | None
    """Whether the promise was kept, None where that cannot be told or none was made."""
    losses: int
    parameters: int
    differs_at: int | None = None
    """The first step whose loss is not bit for bit the original's."""
    doubt: Doubt | None = None
    method: Method = "as-is"

    @property
    def tolerance(self) -> str:
        """The measure that was applied, in words."""
        return (
            f"losses within rtol {RTOL:g}, atol {ATOL:g} over the first {EARLY} steps and "
            f"{GROWTH} times that later; parameters within {RTOL * GROWTH:g} of their norm"
        )


def compare(original: Trace, again: Trace, fixed: Trace, safety: Safety) -> Comparison:
    """Compare a fixed run with the original; a second run of this shows what it can promise."""
    own = _word(original, again)
    word = _word(original, fixed)
    losses = len(fixed.losses)
    parameters = fixed.parameters.count if fixed.parameters else 0
    differs_at = _first_difference(original, fixed)
    if own != "equal" and (safety != Safety.CLOSE or own != "close"):
        doubt = Doubt.not_repeatable(_first_difference(original, again))
        return Comparison("not-compared", None, losses, parameters, differs_at, doubt)
    if safety == Safety.EXACT:
        kept: bool | None = word == "equal"
    elif safety == Safety.CLOSE:
        kept = word in ("equal", "close")
    else:
        kept = None
    if word == "not-compared" and kept is False:
        word = "different"
    return Comparison(word, kept, losses, parameters, differs_at)


def _word(original: Trace, other: Trace) -> Word:
    """Give the closest word that fits losses and parameters both."""
    before, after = original.parameters, other.parameters
    if (before is None) != (after is None) or (after is not None and not after.shapes):
        return "not-compared"
    if len(original.losses) != len(other.losses):
        return "different"
    if _first_difference(original, other) is None and (after is None or after.equal == after.count):
        return "equal"
    near = all(
        _near(first, second, 1 if step < EARLY else GROWTH)
        for first, second, step in zip(
            original.losses, other.losses, original.loss_steps, strict=True
        )
    )
    return "close" if near and (after is None or after.distance <= RTOL * GROWTH) else "different"


def _first_difference(original: Trace, other: Trace) -> int | None:
    pairs = zip(original.losses, other.losses, original.loss_steps, strict=False)
    for first, second, step in pairs:
        if first != second and not (math.isnan(first) and math.isnan(second)):
            return step
    shorter = min(len(original.losses), len(other.losses))
    if len(original.losses) == len(other.losses):
        return None
    return original.loss_steps[shorter] if shorter < len(original.losses) else original.taken


def _near(first: float, second: float, growth: int) -> bool:
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return first == second or abs(first - second) <= growth * (ATOL + RTOL * abs(first))
