"""Analysis of loops: the base of whatever asks about them, and about values."""

from __future__ import annotations

from torchlint.semantic.loops.loops import Loops
from torchlint.semantic.values.known import ValueAnalysis


class LoopAnalysis(ValueAnalysis):
    """What analyses of loops ask: the loops, and what the expressions in them are."""

    def __init__(self, loops: Loops) -> None:
        super().__init__(loops.values)
        self.loops = loops
