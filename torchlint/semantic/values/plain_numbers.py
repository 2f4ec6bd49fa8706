"""Plain numbers: expressions known to be Python numbers, not tensors."""

from __future__ import annotations

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.syntax.methods import last_word
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis


class PlainNumbers(ValueAnalysis):
    """Finds plain numbers: literals, sizes, roots, and names for them."""

    @memoized(False)
    def is_number(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is known to be a plain Python number, not a tensor."""
        if isinstance(node, (cst.Integer, cst.Float)):
            return True
        if isinstance(node, cst.UnaryOperation):
            return self.is_number(node.expression)
        if isinstance(node, cst.Call):
            return self._counts(node)
        if isinstance(node, cst.Subscript):
            return isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
        if isinstance(node, cst.BinaryOperation):
            if isinstance(node.operator, cst.Power) and self._is_root(node.right):
                return self.kinds.kind(node.left) not in (Kind.TENSOR, Kind.LOSS, Kind.NDARRAY)
            return self.is_number(node.left) and self.is_number(node.right)
        if isinstance(node, cst.BooleanOperation):
            return self.is_number(node.right)
        if isinstance(node, (cst.Name, cst.Attribute)):
            return self._names_number(node)
        return False

    def _is_root(self, exponent: cst.BaseExpression) -> bool:
        return self.values.value_of(exponent).literal in (0.5, -0.5)

    def _counts(self, call: cst.Call) -> bool:
        name = self.names.name(call.func) or ""
        if name.startswith("math.") or name in ("builtins.float", "builtins.int", "builtins.len"):
            return True
        if name in ("numpy.sqrt", "builtins.pow", "numpy.power"):
            return bool(call.args) and self.is_number(call.args[0].value)
        return last_word(call.func) == "size" and len(call.args) == 1

    def _names_number(self, node: cst.Name | cst.Attribute) -> bool:
        found = self.values.value_of(node).node
        if found is not None and found is not node and self.is_number(found):
            return True
        if self.kinds.kind(node) is Kind.NUMBER:
            return True
        bindings = self.scopes.reaching(node)
        return bool(bindings) and all(
            each.how is How.UNPACKED and each.value is not None and self._is_shape(each.value)
            for each in bindings
        )

    def _is_shape(self, node: cst.BaseExpression) -> bool:
        return last_word(node.func if isinstance(node, cst.Call) else node) in ("shape", "size")
