from __future__ import annotations

from collections.abc import Iterator

from torchlint.edit import Span
from torchlint.finding import Finding, Note
from torchlint.rule import Rule
from torchlint.semantic.script import Script

from .words import places


class HeavyCall(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the word."""
        for span in places(script, "heavy"):
            note = Note(Span(0, 1), "the file begins here")
            yield Finding(self.code, span, "`heavy` is heavy: think of another way", None, (note,))
