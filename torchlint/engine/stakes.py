"""What a finding weighs: its impact where it stands, and waits that another rule covers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import libcst as cst

from torchlint.edit import Span
from torchlint.finding import Finding, Impact
from torchlint.registry import RuleHead

if TYPE_CHECKING:
    from torchlint.semantic.script import Script

_LESS: Final[dict[Impact, Impact]] = {"high": "medium", "medium": "low", "low": "low"}


def told_once(found: list[Finding], waits: Collection[str], script: Script) -> list[Finding]:
    """Return findings without the waits in a loop whose head another rule reports.

    `waits` are the codes of the rules about waits. A loop that runs a network does many things,
    any other has one cure.
    """
    from torchlint.semantic.loops.loops import Role

    if not any(finding.code in waits for finding in found):
        return found
    told = [
        (finding.code, loop.node.body)
        for loop in script.whole.loops.all()
        if isinstance(loop.node, cst.For) and loop.role is Role.OTHER
        for finding in found
        if _is_about(finding, loop.node, finding.code in waits, script)
        and not script.whole.loops.runs_module(loop.node.body)
    ]
    return [
        finding
        for finding in found
        if finding.code not in waits
        or not any(
            code != finding.code and script.whole.tree.holds(body, finding.span)
            for code, body in told
        )
    ]


def _is_about(finding: Finding, loop: cst.For, waits: bool, script: Script) -> bool:
    """Return whether a finding is about a loop: its head, or for a wait what it draws from."""
    drawn = script.whole.tree.span(loop.iter)
    if finding.span == drawn:
        return waits
    return finding.span == Span(script.whole.tree.span(loop).start, drawn.end)


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
        matters = head.is_about_results and impact != "low"
        return replace(finding, impact="medium" if matters else "low")
    if head.is_about_syncs:
        if impact == "high" and script.whole.loops.gradient_accumulations.closes(finding.span):
            impact = "low"  # several passes share the wait
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
    if impact != "high" and generation.is_part(finding.span):
        return True
    return impact == "low" and generation.is_part_of_language_model(finding.span)
