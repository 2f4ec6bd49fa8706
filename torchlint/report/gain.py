"""What fixing a rule's findings gained in the script that is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torchlint.finding import Safety

__all__ = ["Measured"]

_AFTERWORDS: Final = {
    "SAME": ", no measurable difference",
    "SLOWER": ", slower",
    "DIFFERENT": ", other numbers",
    "UNSURE": ", too noisy to tell",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What fixing a rule's findings gained in this very script."""

    verdict: str
    device: str
    ratio: float
    """The step time of the original over that of the fixed script."""
    low: float
    high: float
    safety: Safety
    """The least safety among the fixes that were made."""
    findings: int = 1
    """How many findings were fixed together."""

    @property
    def share(self) -> float | None:
        """The share of a step that the findings cost, None where that could not be told."""
        if self.verdict in ("DIFFERENT", "UNSURE"):
            return None
        return 0.0 if self.verdict == "SAME" else 1 - 1 / self.ratio

    @property
    def words(self) -> str:
        """The result in a few words, with its device."""
        together = f", all {self.findings} together" if self.findings > 1 else ""
        return (
            f"measured {self.ratio:.2f}x on {self.device}{together}"
            f"{_AFTERWORDS.get(self.verdict, '')}"
        )
