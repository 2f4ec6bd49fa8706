"""Keeping: which code runs only to make what an object then keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.loops.flags import is_spent
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.syntax.methods import last_line

_SAME: Final = (cst.Is, cst.Equal, cst.NotIn)
_OTHER: Final = (cst.IsNot, cst.NotEqual, cst.In)
_ENDS: Final = (cst.Return, cst.Continue)


class Keeping(Analysis):
    """Finds the code behind the question whether something was made before."""

    def makes_once(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        """Return whether a loop or function runs a node only where something is still missing."""
        blocks: list[cst.IndentedBlock] = []
        for child, at in self.tree.outward(node):
            if type(at) is cst.IndentedBlock:
                blocks.append(at)
                if self._follows_exit(at, child):
                    return True
            if at is outer:
                return False
            if type(at) is cst.If and child is at.body:
                if is_spent(self.tree, at.test, blocks, outer):
                    return True
                if self._asks(at.test) and self._lacks(at.test, True, {*self._made(at.body)}):
                    return True
        return False

    def _follows_exit(self, block: cst.IndentedBlock, node: cst.CSTNode) -> bool:
        """Return whether a block ends early, above a node, if there is what the rest makes."""
        for place, line in enumerate(block.body):
            if line is node:
                return False
            if not isinstance(line, cst.If) or line.orelse is not None:
                continue
            if isinstance(last_line(line.body), _ENDS) and self._asks(line.test):
                rest = {path for other in block.body[place + 1 :] for path in self._made(other)}
                if self._lacks(line.test, False, rest):
                    return True
        return False

    def _asks(self, test: cst.BaseExpression) -> bool:
        """Return whether a test asks for an attribute, also by `hasattr`."""
        return any(True for _ in self._paths(test)) or any(
            dotted(call.func) == "hasattr" for call in self.tree.within(test, cst.Call)
        )

    def _made(self, region: cst.CSTNode) -> Iterator[str]:
        """Yield the paths of the attributes that some code assigns or fills, with all it calls."""
        for body in self.functions.reached(region):
            for each in self.functions.own(body, cst.AssignTarget):
                kept = each.target.value if isinstance(each.target, cst.Subscript) else each.target
                if isinstance(kept, cst.Attribute):
                    yield dotted(kept)

    def _lacks(self, test: cst.BaseExpression, wanted: bool, made: set[str]) -> bool:
        """Return whether a test comes out as `wanted` while something is missing, or unfit."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self._lacks(test.expression, not wanted, made)
        if isinstance(test, cst.BooleanOperation):
            sides = [self._lacks(side, wanted, made) for side in (test.left, test.right)]
            if isinstance(test.operator, cst.And) == wanted or not any(sides):
                return any(sides)
            other = test.left if sides[1] else test.right
            return all(sides) or not made.isdisjoint(self._paths(other))
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            asked = test.comparisons[0]
            member = isinstance(asked.operator, (cst.In, cst.NotIn))
            if not isinstance(asked.operator, _SAME if wanted else _OTHER):
                return False
            if member:
                return dotted(asked.comparator) in made
            return self.tree.code(asked.comparator) == "None" and dotted(test.left) in made
        if isinstance(test, cst.Call) and dotted(test.func) == "hasattr" and len(test.args) == 2:
            name = test.args[1].value
            field = str(name.evaluated_value) if isinstance(name, cst.SimpleString) else ""
            return not wanted and f"{dotted(test.args[0].value)}.{field}" in made
        return not wanted and dotted(test) in made

    def _paths(self, test: cst.BaseExpression) -> Iterator[str]:
        return map(dotted, self.tree.within(test, cst.Attribute))
