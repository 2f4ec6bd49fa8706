"""Repeats: waits in the passes of a loop about which another rule says the same."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import libcst as cst

from torchlint.edit import Span
from torchlint.finding import Finding

if TYPE_CHECKING:
    from torchlint.semantic.script import Script


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
