"""Short passes: those that end after a batch or two."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops
from torchlint.semantic.syntax.methods import last_line
from torchlint.semantic.values.options import Options
from torchlint.semantic.values.unread import Unread

_FEW: Final = 16
"""The most batches of a pass that is short."""


class ShortPasses(LoopAnalysis):
    """Tells which passes over a loader leave most of its batches alone."""

    def __init__(self, loops: Loops) -> None:
        super().__init__(loops)
        self.options = Options(self.values)
        self.unread = Unread(self.functions)

    def takes_one(self, place: cst.CSTNode) -> bool:
        """Return whether a pass ends after a batch or two: `next(iter(loader))`, or a `break`."""
        if isinstance(place, cst.For):
            last = last_line(place.body)
            ends = isinstance(last, (cst.Break, cst.Return)) and not self._goes_on(place)
            return ends or any(self._stops_early(place, line) for line in place.body.body)
        if not isinstance(place, cst.Call):
            return False
        drawing = self.tree.taker(place)
        if self.iteration.draws(drawing):
            return True
        holder = self.tree.parent(place)
        return isinstance(holder, cst.Assign) and self._is_drawn_once(holder)

    def _goes_on(self, loop: cst.For) -> bool:
        """Return whether a `continue` may skip the last line of a loop."""
        return any(
            next((around.node for around in self.loops.around(line)), loop) is loop
            for line in self.tree.within(loop.body, cst.Continue)
        )

    def _is_drawn_once(self, made: cst.Assign) -> bool:
        """Return whether the only use of an iterator is one `next` in the block that makes it."""
        target = made.targets[0].target
        uses = self.unread.uses(made, target) if isinstance(target, cst.Name) else []
        if len(uses) != 1 or len(made.targets) != 1:
            return False
        drawing = self.tree.taker(uses[0])
        return (
            isinstance(drawing, cst.Call)
            and self.iteration.draws(drawing)
            and self.scopes.blocks(made) == self.scopes.blocks(drawing)
        )

    def _stops_early(self, loop: cst.For, line: cst.CSTNode) -> bool:
        """Return whether a line leaves a loop at one of its first passes (`if i == 2: break`)."""
        if not isinstance(line, cst.If) or not isinstance(line.test, cst.Comparison):
            return False
        test, target = line.test, loop.target
        counter = target.elements[0].value if isinstance(target, cst.Tuple) else None
        if len(test.comparisons) != 1 or not isinstance(counter, cst.Name):
            return False
        ((operator, most),) = ((each.operator, each.comparator) for each in test.comparisons)
        return (
            isinstance(operator, (cst.Equal, cst.GreaterThan, cst.GreaterThanEqual))
            and isinstance(test.left, cst.Name)
            and test.left.value == counter.value
            and self._is_few(most)
            and isinstance(last_line(line.body), (cst.Break, cst.Return))
        )

    def _is_few(self, most: cst.BaseExpression) -> bool:
        """Return whether a number is small, by what is written or by the default of an option."""
        option = self.options.of(most)
        count = option.default if option is not None else self.values.value_of(most).literal
        return type(count) is int and count <= _FEW
