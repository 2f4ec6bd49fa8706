from __future__ import annotations

from collections.abc import Iterator

from torchlint.edit import Edit
from torchlint.finding import Finding, Fix
from torchlint.rule import Rule
from torchlint.semantic.script import Script

from .words import places


class SlowCall(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the word."""
        for span in places(script, "slow"):
            fix = Fix.exact("Call `fast`", (Edit(span, "fast"),))
            yield Finding(self.code, span, "`slow` takes its time: call `fast`", fix)
