"""What a verification tells while it goes on: an estimate, comparisons, and rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torchlint.harness.judging.verdict import Outcome
from torchlint.harness.plan import Variant

Ratios = Sequence[tuple[Variant, float]]


class Listener(Protocol):
    """Hears of every result as soon as it is known."""

    def planned(self, variants: int, runs: int, seconds: float | None, budget: float) -> None:
        """Hear how many variants there are, how many runs and seconds they need, and the budget."""

    def compared(self, outcome: Outcome) -> None:
        """Hear how the numbers of a variant compare; nothing was timed yet."""

    def timed(self, rounds: int, of: int, ratios: Ratios, left: float | None) -> None:
        """Hear how many times faster variants are so far, and the seconds that remain."""


class Silence:
    """A listener that does nothing."""

    def planned(self, variants: int, runs: int, seconds: float | None, budget: float) -> None:
        """Ignore the estimate."""

    def compared(self, outcome: Outcome) -> None:
        """Ignore the comparison."""

    def timed(self, rounds: int, of: int, ratios: Ratios, left: float | None) -> None:
        """Ignore the round."""
