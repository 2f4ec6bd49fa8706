"""Short passes: those that end after a batch or two, and loaders from which nothing draws."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops
from torchlint.semantic.syntax.methods import last_line
from torchlint.semantic.values.options import Options

_FEW: Final = 16
"""The most batches of a pass that is short."""


class ShortPasses(LoopAnalysis):
    """Tells which passes over a loader leave most of its batches alone."""

    def __init__(self, loops: Loops) -> None:
        super().__init__(loops)
        self.options = Options(self.values)

    def takes_one(self, place: cst.CSTNode) -> bool:
        """Return whether a pass ends after a batch or two: `next(iter(loader))`, or a `break`."""
        if isinstance(place, cst.For):
            last = last_line(place.body)
            ends = isinstance(last, (cst.Break, cst.Return)) and not self._goes_on(place)
            return ends or any(self._stops_early(place, line) for line in place.body.body)
        if not isinstance(place, cst.Call):
            return False
        drawing = self.tree.taker(place)
        if drawing is not None and self._is_next(drawing):
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
        uses = self._uses(made, target) if isinstance(target, cst.Name) else []
        if len(uses) != 1 or len(made.targets) != 1:
            return False
        drawing = self.tree.taker(uses[0])
        return (
            isinstance(drawing, cst.Call)
            and self._is_next(drawing)
            and self.scopes.blocks(made) == self.scopes.blocks(drawing)
        )

    def _uses(self, made: cst.Assign, target: cst.Name) -> list[cst.Name]:
        """Return the names that read what an assignment binds to a name."""
        return [
            use
            for use in self.tree.spelled(target.value)
            if self.scopes.reads(use)
            and any(binding.node is made for binding in self.scopes.reaching(use))
        ]

    def is_unread(self, call: cst.Call) -> bool:
        """Return whether nothing draws from a loader: it may be counted, kept or handed back."""
        holder = self.tree.parent(call)
        return isinstance(holder, cst.Assign) and self._are_unread(holder)

    def _are_unread(self, made: cst.Assign) -> bool:
        return all(self._is_unread(each.target, made) for each in made.targets)

    def _is_unread(self, target: cst.BaseExpression, made: cst.Assign) -> bool:
        if isinstance(target, cst.Attribute):
            word = target.attr.value
            places = (self.tree.parent(each) for each in self.functions.attributes(word))
            return word.startswith("_") and all(
                isinstance(each, cst.AssignTarget) for each in places
            )
        if not isinstance(target, cst.Name):
            return False
        uses = self._uses(made, target)
        if uses or self.scopes.function(made) is not None:
            return all(map(self._is_idle, uses))
        return self.tree.source.is_notebook or target.value in self.tree.view.idle

    def _is_idle(self, use: cst.Name) -> bool:
        """Return whether a use of a loader only counts, keeps or hands it back to be unused."""
        holder = self.tree.parent(use)
        if isinstance(holder, cst.Assign):
            return self._are_unread(holder)
        row = self.tree.parent(holder) if isinstance(holder, cst.Element) else None
        if isinstance(row, cst.Tuple) and isinstance(self.tree.parent(row), cst.Return):
            at = next(i for i, each in enumerate(row.elements) if each is holder)
            return self._is_handed_back_unread(row, at)
        return self._is_counted(use)

    def _is_handed_back_unread(self, row: cst.Tuple, at: int) -> bool:
        """Return whether no caller of a function uses one of the values that it returns."""
        function = self.scopes.function(row)
        calls = self.functions.callers(function) if function is not None else []
        if function is None or not calls or self.functions.escapes(function):
            return False
        for call in calls:
            taken = self.tree.parent(call)
            target = taken.targets[0].target if isinstance(taken, cst.Assign) else None
            if not isinstance(target, cst.Tuple) or len(target.elements) != len(row.elements):
                return False
            assert isinstance(taken, cst.Assign)
            if not self._is_unread(target.elements[at].value, taken):
                return False
        return True

    def _is_counted(self, use: cst.Name) -> bool:
        asked = self.tree.taker(use)
        return isinstance(asked, cst.Call) and self.names.name(asked.func) == "builtins.len"

    def _is_next(self, call: cst.Call) -> bool:
        return self.names.name(call.func) == "builtins.next"

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
