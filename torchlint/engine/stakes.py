"""What is at stake in a finding: less in code that runs once, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torchlint.finding import Finding
from torchlint.registry import RuleHead

if TYPE_CHECKING:
    from torchlint.semantic.script import Script


def weighed(finding: Finding, head: RuleHead, script: Script) -> Finding:
    """Return a finding with the impact that it has where the code stands.

    High is for what runs in each step of a training or in each epoch. Inference, conversion and
    the making of data run once: low, or medium where results are at stake. So is what nothing uses.
    An evaluation at the end of a training is medium.
    """
    impact = finding.impact or head.impact
    if impact == "low":
        return finding
    purpose = script.whole.program.purpose
    if purpose.is_unused(finding.span):
        return replace(finding, impact="low")
    if purpose.is_one_off(finding.span):
        return replace(finding, impact="medium" if head.gain == "results" else "low")
    if impact == "high" and purpose.is_evaluated_once(finding.span):
        return replace(finding, impact="medium")
    return finding
