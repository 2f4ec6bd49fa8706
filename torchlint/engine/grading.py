"""The safety of fixes: the user's settings, and which fixes `fix` makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from torchlint.config import Settings
from torchlint.finding import Finding, Safety
from torchlint.registry.selection import Groups, winners


def applies(finding: Finding, settings: Settings) -> bool:
    """Return whether `fix` applies the fix of a finding under these settings."""
    gate = Safety.UNSAFE if settings.unsafe_fixes else Safety.CLOSE
    return finding.fix is not None and finding.fix.safety >= gate


class Grades(NamedTuple):
    """The settings about the fixes of each rule."""

    fixable: frozenset[str]
    safe: frozenset[str]
    unsafe: frozenset[str]

    @classmethod
    def of(cls, settings: Settings, known: Mapping[str, str], groups: Groups) -> Grades:
        """Resolve the words in the settings to codes."""
        safe, unsafe = settings.extend_safe_fixes, settings.extend_unsafe_fixes
        rules, members = tuple(known.items()), tuple(groups.items())
        return cls(
            _winners(rules, members, settings.fixable, settings.unfixable),
            _winners(rules, members, safe, unsafe),
            _winners(rules, members, unsafe, safe),
        )

    def graded(self, finding: Finding) -> Finding:
        """Return a finding with the safety of its fix set by the user, or without the fix."""
        fix = finding.fix
        if fix is None:
            return finding
        if finding.code not in self.fixable:
            return replace(finding, fix=None)
        if finding.code in self.unsafe and fix.safety > Safety.UNSAFE:
            because = fix.because or "the configuration says so"
            return replace(finding, fix=replace(fix, safety=Safety.UNSAFE, because=because))
        if finding.code in self.safe and fix.safety is Safety.UNSAFE:
            return replace(finding, fix=replace(fix, safety=Safety.CLOSE))
        return finding


@lru_cache
def _winners(
    rules: tuple[tuple[str, str], ...],
    groups: tuple[tuple[str, frozenset[str]], ...],
    chosen: tuple[str, ...],
    dropped: tuple[str, ...],
) -> frozenset[str]:
    """Return the chosen codes; cached, because most files of a run share their settings."""
    return winners(dict(rules), chosen, dropped, (), dict(groups))
