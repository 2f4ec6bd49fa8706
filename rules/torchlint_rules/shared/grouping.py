"""Findings that have one cause: what one function or class does in several places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import libcst as cst

from torchlint.api import Finding, Fix, Note, Script


def joined(
    script: Script, found: Iterable[tuple[cst.CSTNode, Finding]], nouns: tuple[str, str]
) -> Iterator[Finding]:
    """Yield one finding for those of each place that code may reach, the others as its notes.

    Its fix makes the safest of theirs; the next pass reports what is left.
    """
    groups: dict[tuple[int, str | None], list[Finding]] = {}
    branches = script.whole.program.branches
    for place, finding in found:
        if not branches.are_never_taken(finding.span):
            groups.setdefault((id(place), finding.impact), []).append(finding)
    for group in groups.values():
        yield from _one(group, nouns)


def maker(script: Script, node: cst.CSTNode) -> cst.CSTNode:
    """Return the class around a node, or the function, or the module."""
    return script.scopes.class_of(node) or script.scopes.home(node)


def _one(found: list[Finding], nouns: tuple[str, str]) -> list[Finding]:
    """Return one finding for several, all of them if their fixes clash."""
    fixes = [each.fix for each in found if each.fix is not None]
    safest = max((fix.safety for fix in fixes), default=None)
    alike = [fix for fix in fixes if fix.safety is safest]
    fix = Fix.of_several(alike) if alike else None
    if len(found) == 1 or (fixes and fix is None):
        return found
    first = next((each for each in found if each.fix in alike), found[0])
    others = [each for each in found if each is not first]
    noun = nouns[len(others) > 1]
    message = f"{first.message} (likewise for {len(others)} more {noun})"
    notes = tuple(Note(each.span, f"this {nouns[0]}, too") for each in others)
    return [replace(first, message=message, fix=fix, notes=(*first.notes, *notes))]
