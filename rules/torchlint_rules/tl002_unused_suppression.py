"""TL002: a suppression comment that suppresses nothing."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.api import Finding, Rule, Script


class UnusedSuppression(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Yield nothing: only the engine knows which findings the comments suppressed."""
        yield from ()
