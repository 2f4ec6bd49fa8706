"""What is at stake in a finding: less in code that runs once, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from torchlint.finding import Finding, Impact
from torchlint.registry import RuleHead

if TYPE_CHECKING:
    from torchlint.semantic.script import Script

_LESS: Final[dict[Impact, Impact]] = {"high": "medium", "medium": "low", "low": "low"}


def weighed(finding: Finding, head: RuleHead, script: Script) -> Finding | None:
    """Return a finding with the impact that it has where the code stands, None if it has none.

    High is for what runs in each step of a training or in each epoch. Inference, conversion and
    the making of data run once: low, or medium where results are at stake. What nothing uses only
    has to be kept up with torch, what always raises has no speed, and a test checks its results.
    An evaluation that runs once matters one level less, and no wait or copy of it but the costly
    ones. A wait of the host for the device is nothing beside the seconds for which a network
    generates, and low where several passes share one step. A small one is nothing beside the passes
    of a language model.
    """
    impact = cast("Impact", finding.impact or head.impact)
    program = script.whole.program
    if program.branches.are_never_taken(finding.span):
        return None
    if program.purpose.is_unused(finding.span):
        return replace(finding, impact="low") if head.gain == "upkeep" else None
    if head.gain == "speed" and program.purpose.is_never_reached(finding.span):
        return None
    if head.is_about_results and program.purpose.is_in_test(finding.span):
        return None
    purpose = script.program.purpose
    if purpose.is_one_off(finding.span):
        once = script.tree.view.is_beside_training or purpose.is_applied_once(finding.span)
        if once and head.gain == "speed":
            return None
        return replace(finding, impact="medium" if _is_about_results(impact, head) else "low")
    if head.is_about_syncs:
        if impact == "high" and _is_shared(finding, script):
            impact = "low"
        if _is_drowned(finding, impact, script):
            return None
    if impact != "low" and not head.is_about_results and purpose.is_evaluated_once(finding.span):
        if head.impact != "high" and head.is_about_syncs:
            return None
        impact = _LESS[impact]
    return replace(finding, impact=impact)


def _is_drowned(finding: Finding, impact: Impact, script: Script) -> bool:
    """Return whether a wait stands beside work that takes a thousand times as long."""
    generation = script.whole.loops.generation
    if generation.is_beside(finding.span):
        return True
    small = generation.is_sampling(finding.span) or generation.draws(finding.span)
    if small and impact != "high":
        return True
    return impact == "low" and generation.is_part_of_language_model(finding.span)


def _is_shared(finding: Finding, script: Script) -> bool:
    """Return whether several passes share a wait."""
    return script.whole.loops.gradient_accumulations.closes(finding.span)


def _is_about_results(impact: Impact, head: RuleHead) -> bool:
    return head.is_about_results and impact != "low"
