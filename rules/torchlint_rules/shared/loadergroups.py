"""Findings about loaders: those that one class or function makes have one cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from torchlint.api import CallSite, Finding, Fix, Note, Script


def joined(script: Script, found: Iterable[tuple[CallSite, Finding]]) -> Iterator[Finding]:
    """Yield one finding for the loaders of a class or function, the others as its notes."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for site, finding in found:
        owner = script.scopes.class_of(site.node) or script.scopes.home(site.node)
        safety = finding.fix.safety if finding.fix is not None else None
        groups.setdefault((id(owner), finding.impact, safety), []).append(finding)
    for group in groups.values():
        yield from _one(group)


def _one(found: list[Finding]) -> list[Finding]:
    """Return one finding for several, all of them if their fixes clash."""
    first, *others = found
    if not others:
        return found
    fixes = [each.fix for each in found if each.fix is not None]
    fix = Fix.of_several(fixes) if fixes else None
    if fixes and fix is None:
        return found
    message = f"{first.message} (likewise for {len(others)} more loader{'s' * (len(others) > 1)})"
    notes = tuple(Note(each.span, "this loader, too") for each in others)
    return [replace(first, message=message, fix=fix, notes=(*first.notes, *notes))]
