"""What is at stake in a finding: less in code that runs once, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from torchlint.finding import Finding, Impact
from torchlint.registry import RuleHead

if TYPE_CHECKING:
    from torchlint.semantic.script import Script

_LESS: Final[dict[str, Impact]] = {"high": "medium", "medium": "low", "low": "low"}

WAITS: Final = "TL2"
"""The codes of rules about the host and the device, whose findings cost milliseconds a pass."""


def weighed(finding: Finding, head: RuleHead, script: Script) -> Finding | None:
    """Return a finding with the impact that it has where the code stands, None if it has none.

    High is for what runs in each step of a training or in each epoch. Inference, conversion and
    the making of data run once: low, or medium where results are at stake. So is what nothing uses.
    An evaluation at the end of a training matters one level less. A wait of the host for the
    device is low beside the seconds for which a network generates, and where several passes share
    one step. A small one is nothing beside the passes of a language model.
    """
    impact = finding.impact or head.impact
    if script.whole.program.branches.are_never_taken(finding.span):
        return None
    purpose = script.program.purpose
    if purpose.is_one_off(finding.span):
        if _is_small(impact, head) and purpose.is_applied_once(finding.span):
            return None
        return replace(finding, impact="medium" if _is_about_results(impact, head) else "low")
    waits = head.code.startswith(WAITS)
    if impact == "low":
        return None if waits and _is_drowned(finding, script) else finding
    unused = script.whole.program.purpose.is_unused(finding.span)
    if unused or (waits and _is_rare(finding, impact, script)):
        return replace(finding, impact="low")
    if not head.is_about_results and purpose.is_evaluated_once(finding.span):
        return replace(finding, impact=_LESS[impact])
    return finding


def _is_drowned(finding: Finding, script: Script) -> bool:
    """Return whether a small wait stands beside work that takes a thousand times as long."""
    generation = script.whole.loops.generation
    return (
        generation.is_beside(finding.span)
        or generation.is_sampling(finding.span)
        or generation.is_part_of_language_model(finding.span)
    )


def _is_rare(finding: Finding, impact: str, script: Script) -> bool:
    """Return whether seconds pass between a wait and the next."""
    loops = script.whole.loops
    return loops.generation.is_beside(finding.span) or (
        impact == "high" and loops.gradient_accumulations.closes(finding.span)
    )


def _is_about_results(impact: str, head: RuleHead) -> bool:
    return head.is_about_results and impact != "low"


def _is_small(impact: str, head: RuleHead) -> bool:
    """Return whether a finding is about a small part of the time that a single run takes."""
    return head.gain == "speed" and impact != "high"
