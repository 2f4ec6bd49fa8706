"""TL303: a GradScaler that is used incorrectly."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import Finding, Note, Rule, Script
from torchlint_rules.tl303_misused_grad_scaler.checkpoint import left_out
from torchlint_rules.tl303_misused_grad_scaler.scaler import misuses


class MisusedGradScaler(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every misuse of a scaler, each place once."""
        if script.optimizers.scaling.is_off or not script.optimizers.scaling.all:
            return
        seen: set[int] = set()
        for misuse in (*misuses(script), *left_out(script)):
            if id(misuse.node) not in seen and script.loops.owner(misuse.node) == "none":
                seen.add(id(misuse.node))
                span = script.span(misuse.node)
                notes = tuple(Note(script.span(each), "and this one") for each in misuse.beside)
                yield Finding(self.code, span, misuse.message, misuse.fix, notes, misuse.impact)
