from __future__ import annotations

from collections.abc import Iterator

from torchlint.edit import Edit
from torchlint.finding import Finding, Fix, Safety
from torchlint.rule import Rule
from torchlint.semantic.script import Script

from .words import places


class RiskyCall(Rule):
    """
    ## What it does
    Flags every `risky`.

    ## Why it is slow
    It is a test.

    ## When not to
    Never.

    ## Fix safety
    Unsafe.
    """

    code = "XY301"
    name = "risky-call"
    summary = "there is a faster one that differs"
    impact = "medium"
    safety = Safety.UNSAFE
    about = ("risky",)
    needs = ("risky",)

    invalid = {
        "a call": """
            - risky()
            + daring()
            """,
    }
    valid = {
        "another call": """
            other()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the word."""
        for span in places(script, "risky"):
            because = "the random stream differs"
            fix = Fix.unsafe("Call `daring`", (Edit(span, "daring"),), because=because)
            yield Finding(self.code, span, "`risky` could be faster", fix)
