from __future__ import annotations

from collections.abc import Iterator

from torchlint.edit import Edit
from torchlint.finding import Finding, Fix
from torchlint.rule import Rule
from torchlint.semantic.script import Script

from .words import places


class RiskyCall(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the word."""
        for span in places(script, "risky"):
            because = "the random stream differs"
            fix = Fix.unsafe("Call `daring`", (Edit(span, "daring"),), because=because)
            yield Finding(self.code, span, "`risky` could be faster", fix)
