from __future__ import annotations

from collections.abc import Iterator

from torchlint.finding import Finding
from torchlint.rule import Rule
from torchlint.semantic.script import Script

from .words import places


class BrokenRule(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the word."""
        for span in places(script, "explode"):
            raise RuntimeError(f"no idea what to do at {span.start}")
            yield
