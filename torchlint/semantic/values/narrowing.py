"""Narrowing: what the conditions around an expression tell about the kind of a name."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.syntax.methods import operands_of

_TENSOR: Final = (
    "torch.Tensor", "torch.FloatTensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter",
)  # fmt: skip


class Narrowing(Analysis):
    """Finds the names that code has asked for a tensor: `if isinstance(v, torch.Tensor):`."""

    def is_tensor(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression stands in code that runs only where it is a tensor."""
        if not self._asked or self.tree.code(node) not in self._asked:
            return False
        for child, outer in self.tree.outward(node):
            if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
                return False
            if isinstance(outer, (cst.If, cst.IfExp)) and child is outer.body:
                tested = (each for each in operands_of(outer.test) if self._asks(each, node))
                if _holds_all(outer.test) and any(True for _ in tested):
                    return True
        return False

    def is_no_tensor(self, node: cst.Name) -> bool:
        """Return whether a name stands in code that runs only where its value is no tensor."""
        if not self._asked or node.value not in self._asked:
            return False
        for child, outer in self.tree.outward(node):
            if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
                return False
            if isinstance(outer, (cst.If, cst.IfExp)) and child is not outer.test:
                if self._is_ruled_out(outer.test, node, holds=child is outer.body):
                    return True
        return False

    def _is_ruled_out(self, test: cst.BaseExpression, node: cst.Name, *, holds: bool) -> bool:
        """Return whether a value is no tensor where a test holds, or where it does not."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            return self._is_ruled_out(test.expression, node, holds=not holds)
        if isinstance(test, cst.BooleanOperation):
            decides = isinstance(test.operator, cst.And) is holds
            sides = (test.left, test.right)
            return decides and any(self._is_ruled_out(each, node, holds=holds) for each in sides)
        if holds or not isinstance(test, cst.Call) or not self._asks(test, node):
            return False
        asks_for_all = all(self.names.name(arg.value) == _TENSOR[0] for arg in test.args[1:])
        return asks_for_all and (
            self.scopes.reaching(test.args[0].value) == self.scopes.reaching(node)
        )

    @cached_property
    def _asked(self) -> frozenset[str]:
        """The code of what a test of the file asks for a tensor."""
        tests = [each.test for each in self.tree.all(cst.If)]
        tests += (each.test for each in self.tree.all(cst.IfExp))
        parts = (part for test in tests for part in operands_of(test))
        return frozenset(
            self.tree.code(part.args[0].value)
            for part in parts
            if isinstance(part, cst.Call) and part.args and self._asks_for_tensor(part)
        )

    def _asks(self, test: cst.BaseExpression, node: cst.BaseExpression) -> bool:
        """Return whether a test is `torch.is_tensor(x)` or `isinstance(x, torch.Tensor)`."""
        if not isinstance(test, cst.Call) or not test.args or not self._asks_for_tensor(test):
            return False
        return self.tree.code(test.args[0].value) == self.tree.code(node)

    def _asks_for_tensor(self, test: cst.Call) -> bool:
        """Return whether a call tells whether its first argument is a tensor."""
        function = self.names.name(test.func)
        return function == "torch.is_tensor" or (
            function == "builtins.isinstance"
            and len(test.args) > 1
            and self.names.name(test.args[1].value) in _TENSOR
        )


def _holds_all(test: cst.BaseExpression) -> bool:
    """Return whether all parts of a condition hold where it does."""
    if isinstance(test, cst.BooleanOperation):
        return isinstance(test.operator, cst.And) and all(map(_holds_all, (test.left, test.right)))
    return not isinstance(test, cst.UnaryOperation)
