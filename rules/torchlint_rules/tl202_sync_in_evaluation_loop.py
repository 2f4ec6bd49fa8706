"""TL202: every evaluation batch forces a GPU sync to add up a number."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import Finding, Rate, Role, Rule, Script
from torchlint_rules.shared.graphbreaks import without_breaks
from torchlint_rules.shared.hookreads import hook_reads
from torchlint_rules.shared.storednumbers import stored_numbers
from torchlint_rules.shared.syncs import syncs


class SyncInEvaluationLoop(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag each evaluation batch's reads that only add to a sum, a list or a meter."""
        found = (
            *syncs(script, self.code, Role.EVAL_BATCH),
            *stored_numbers(script, self.code, Role.EVAL_BATCH),
            *hook_reads(script, self.code, Rate.EVALUATION_STEP),
        )
        yield from without_breaks(script, found)
