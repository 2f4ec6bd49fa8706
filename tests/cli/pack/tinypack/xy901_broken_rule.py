from __future__ import annotations

from collections.abc import Iterator

from torchlint.finding import Finding
from torchlint.rule import Rule
from torchlint.semantic.script import Script

from .words import places


class BrokenRule(Rule):
    """
    ## What it does
    Flags every `explode`.

    ## Why it is slow
    It is a test.

    ## When not to
    Never.

    ## Fix safety
    No fix.
    """

    code = "XY901"
    name = "broken-rule"
    summary = "this rule fails"
    impact = "low"
    safety = None
    about = ("explode",)
    needs = ("explode",)

    invalid = {
        "a call": """
            ! explode()
            """,
    }
    valid = {
        "another call": """
            other()
            """,
    }

    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the word."""
        for span in places(script, "explode"):
            raise RuntimeError(f"no idea what to do at {span.start}")
            yield
