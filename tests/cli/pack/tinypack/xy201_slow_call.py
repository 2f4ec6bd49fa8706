from __future__ import annotations

from collections.abc import Iterator

from torchlint.edit import Edit
from torchlint.finding import Finding, Fix, Safety
from torchlint.rule import Rule
from torchlint.semantic.script import Script

from .words import places


class SlowCall(Rule):
    """
    ## What it does
    Flags every `slow`.

    ## Why it is slow
    It is a test.

    ## When not to
    Never.

    ## Fix safety
    Exact.
    """

    code = "XY201"
    name = "slow-call"
    summary = "there is a fast one"
    impact = "high"
    safety = Safety.EXACT
    about = ("slow",)
    needs = ("slow",)

    invalid = {
        "a call": """
            - slow()
            + fast()
            """,
    }
    valid = {
        "another call": """
            other()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the word."""
        for span in places(script, "slow"):
            fix = Fix.exact("Call `fast`", (Edit(span, "fast"),))
            yield Finding(self.code, span, "`slow` takes its time: call `fast`", fix)
