"""TL001: a file that cannot be parsed."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import Finding, Rule, Script


class UnparsableFile(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Yield nothing: a file with a script parses, and the engine reports the others."""
        yield from ()
