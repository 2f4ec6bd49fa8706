"""What is known of a finding's cost in the checked script, from a verification or a trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torchlint.finding import Safety

_AFTERWORDS: Final = {
    "SAME": ", no measurable difference",
    "SLOWER": ", slower",
    "DIFFERENT": ", other numbers",
    "UNSURE": ", too noisy to tell",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """The measured gain of fixing a rule's findings in this script."""

    verdict: str
    device: str
    ratio: float
    """The step time of the original over that of the fixed script."""
    low: float
    high: float
    safety: Safety
    """The least safety class of the applied fixes."""
    findings: int = 1
    """How many findings were fixed together."""

    @property
    def share(self) -> float | None:
        """The share of a step that the findings cost, None where that is unknown."""
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


@dataclass(frozen=True, slots=True)
class Traced:
    """What a profiler's trace shows at the lines of a finding."""

    share: float
    """The share of the recorded time in which the device was idle because of them.

    In a trace without a device, the share in which the host was there.
    """
    on_device: bool
    waits: int
    """How often the host waited there for the device."""
    findings: int = 1
    """How many findings are about the same lines."""

    @property
    def words(self) -> str:
        """The cost in a few words."""
        what = "device idle" if self.on_device else "host busy"
        waits = f", {self.waits} waits" if self.waits > 1 else ", 1 wait" if self.waits else ""
        together = f", all {self.findings} together" if self.findings > 1 else ""
        return f"trace: {what} {100 * self.share:.2g} %{waits}{together}"
