"""The part of a finding that is about the file itself: linked code has its own turn."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import libcst as cst

from torchlint.edit import Span
from torchlint.finding import Finding, Impact, Note
from torchlint.registry import RuleHead

if TYPE_CHECKING:
    from torchlint.semantic.script import Script

_LESS: Final[dict[Impact, Impact]] = {"high": "medium", "medium": "low", "low": "low"}


def own_part(finding: Finding, script: Script) -> Finding | None:
    """Return a finding without a fix of linked code, None if it stands in linked code.

    Notes about linked code become notes about other files.
    """
    end = len(script.source.text)
    fix = finding.fix
    edits = fix.edits if fix is not None else ()
    places = [finding.span, *(edit.span for edit in edits), *(note.span for note in finding.notes)]
    if all(span.end <= end for span in places):
        return finding
    if finding.span.end > end:
        return None
    if any(edit.span.end > end for edit in edits):
        fix = None
    return replace(finding, fix=fix, notes=tuple(_notes(finding, script, end)))


def _notes(finding: Finding, script: Script, end: int) -> Iterator[Note]:
    for note in finding.notes:
        if note.span.end <= end:
            yield note
        else:
            place = script.tree.place_at(note.span.start)
            path = as_given(place.path, script.tree.view.path, script.source.path)
            yield Note.elsewhere(note.message, path, place.row)


def as_given(path: str, own: str, given: str) -> str:
    """Return a path of the project relative to the folder that the file was given from.

    `own` is the path of the file in the project, `given` that on the command line.
    """
    beside = os.path.relpath(path, os.path.dirname(own) or ".")  # noqa: PTH120
    return os.path.normpath(os.path.join(os.path.dirname(given), beside))  # noqa: PTH118, PTH120


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
    small = generation.is_sampling(finding.span) or generation.draws(finding.span)
    if small and impact != "high":
        return True
    return impact == "low" and generation.is_part_of_language_model(finding.span)
