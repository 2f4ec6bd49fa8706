"""What a verification tells while it goes on: an estimate, comparisons, and rounds."""

from __future__ import annotations

from collections.abc import Sequence

from torchlint.harness.judging.verdict import Outcome
from torchlint.harness.plan import Variant

Ratios = Sequence[tuple[Variant, float]]


class Listener:
    """Hears of every result as soon as it is known; this one does nothing about it."""

    def delayed(self, gone: float, runs: int, seconds: float) -> None:
        """Hear that the first run goes on, and how many runs and seconds a variant needs."""

    def planned(self, variants: int, runs: int, seconds: float | None, budget: float) -> None:
        """Hear how many variants there are, how many runs and seconds they need, and the budget."""

    def compared(self, outcome: Outcome) -> None:
        """Hear how the numbers of a variant compare; nothing was timed yet."""

    def timed(self, rounds: int, of: int, ratios: Ratios, left: float | None) -> None:
        """Hear how many times faster variants are so far, and the seconds that remain."""
