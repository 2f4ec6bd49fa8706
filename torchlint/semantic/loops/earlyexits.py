"""Early exits: lines that leave a block, so that what follows them runs rarely."""

from __future__ import annotations

from typing import Final, Protocol

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops
from torchlint.semantic.scope.libraries import EXITS
from torchlint.semantic.syntax.methods import last_line, lines_of, word_of

_WARNINGS: Final = frozenset("warn warning error critical exception warn_once".split())
_NO_RESULTS: Final = ("None", "True", "False")


class Rarity(Protocol):
    """Tells whether a test comes out as `wanted` in only a few passes of a loop."""

    def __call__(self, test: cst.BaseExpression, wanted: bool = True) -> bool:
        """Answer for one test."""


class EarlyExits(LoopAnalysis):
    """Finds what stands behind the early exits of a block."""

    def __init__(self, loops: Loops, is_rare: Rarity) -> None:
        super().__init__(loops)
        self.is_rare = is_rare

    def cut_off(self, block: cst.IndentedBlock, child: cst.CSTNode, is_body: bool) -> bool:
        """Return whether an early exit of a block makes one of its statements rare."""
        ends = cst.Return if self.loops.innermost(block) is None else cst.Continue
        leaves, skips = self._exits(block, ends)
        if not is_body and leaves:
            return True
        place = self.tree.order(child)
        return any(
            self.tree.order(line) < place
            and self._is_passed_rarely(line, ends)
            and not self.loops.has_update(block.body[block.body.index(line) + 1 :])
            for line in skips
        )

    @cached_method
    def _exits(
        self, block: cst.IndentedBlock, ends: type[cst.CSTNode]
    ) -> tuple[bool, list[cst.If]]:
        """Return whether a line of a block ends the loop, and the `if`s that may skip the rest."""
        lines = [line for line in block.body if isinstance(line, cst.If)]
        skips = [line for line in lines if any(True for _ in self.tree.within(line, ends))]
        return any(map(self._leaves, lines_of(block))), skips

    def _is_passed_rarely(self, line: cst.If, ends: type[cst.CSTNode]) -> bool:
        """Return whether what follows an `if` runs rarely, whichever branch is taken."""
        other, left = line.orelse, self._is_left_before
        return (self.is_rare(line.test) or left(line.body, ends)) and (
            self.is_rare(line.test, wanted=False)
            or (isinstance(other, cst.If) and self._is_passed_rarely(other, ends))
            or (isinstance(other, cst.Else) and left(other.body, ends))
        )

    def _is_left_before(self, block: cst.BaseSuite, ends: type[cst.CSTNode]) -> bool:
        """Return whether nearly every run of a block ends by leaving what is around it."""
        return any(
            isinstance(each, ends)
            or (isinstance(each, cst.If) and self._is_passed_rarely(each, ends))
            for each in lines_of(block)
        )

    def _leaves(self, line: cst.CSTNode) -> bool:
        """Return whether a line ends the loop, so that its block runs at most once."""
        return isinstance(line, (cst.Break, cst.Return, cst.Raise, cst.Continue)) or (
            isinstance(line, cst.Expr)
            and isinstance(line.value, cst.Call)
            and self.functions.names.name(line.value.func) in EXITS
        )


def ends_with_result(block: cst.IndentedBlock) -> bool:
    """Return whether a branch of a function ends with its result, as an `else` of it would.

    One that warns before it is the way out of an error.
    """
    last = last_line(block)
    value = last.value if isinstance(last, cst.Return) else None
    if value is None or any(map(_warns, lines_of(block))):
        return False
    return not (isinstance(value, cst.Name) and value.value in _NO_RESULTS)


def _warns(small: cst.CSTNode) -> bool:
    """Return whether a statement calls something named like a warning or an error."""
    call = small.value if isinstance(small, cst.Expr) else None
    return isinstance(call, cst.Call) and word_of(call) in _WARNINGS
