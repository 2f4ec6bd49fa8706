"""Plain numbers: expressions known to be Python numbers, not tensors."""

from __future__ import annotations

import math
from typing import Final

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.syntax.methods import last_word
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis

_NAMED: Final = {
    "math.pi": math.pi, "numpy.pi": math.pi, "torch.pi": math.pi, "torch.inf": math.inf,
    "math.inf": math.inf, "numpy.inf": math.inf, "numpy.Inf": math.inf,
}  # fmt: skip
_BOUNDS: Final = {"min": -3e38, "max": 3e38}
"""What the bounds of a floating-point type are at least, `torch.finfo(dtype).min`."""
_ROOTS: Final = frozenset({"math.sqrt", "numpy.sqrt", "torch.sqrt"})
_KEEPING: Final = frozenset({"builtins.float", "torch.tensor", "torch.Tensor"})


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
            power = self.values.value_of(node.right).literal
            if isinstance(node.operator, cst.Power) and power in (0.5, -0.5):
                return self.kinds.kind(node.left) not in (Kind.TENSOR, Kind.LOSS, Kind.NDARRAY)
            return self.is_number(node.left) and self.is_number(node.right)
        if isinstance(node, cst.BooleanOperation):
            return self.is_number(node.right)
        if isinstance(node, (cst.Name, cst.Attribute)):
            return self._names_number(node)
        return False

    @memoized(None)
    def value(self, node: cst.BaseExpression) -> float | None:
        """Return the number that an expression certainly is, also as a tensor of one number."""
        value = self.values.value_of(node)
        if isinstance(value.literal, (int, float)) and not isinstance(value.literal, bool):
            return float(value.literal)
        found = value.node if value.node is not None else node
        if isinstance(found, cst.UnaryOperation) and isinstance(found.operator, cst.Minus):
            inner = self.value(found.expression)
            return None if inner is None else -inner
        if isinstance(found, (cst.Attribute, cst.Name)):
            made = found.value if isinstance(found, cst.Attribute) else None
            if isinstance(made, cst.Call) and self.names.name(made.func) == "torch.finfo":
                return _BOUNDS.get(last_word(found))
            return _NAMED.get(self.names.name(found) or "")
        if isinstance(found, cst.BinaryOperation):
            return self._computed(found)
        if isinstance(found, cst.Call) and found.args:
            return self._called(found, found.args[0].value)
        return None

    def _called(self, call: cst.Call, given: cst.BaseExpression) -> float | None:
        """Return the number that a function makes of another one, or of a text."""
        name = self.names.name(call.func)
        text, inner = self.values.value_of(given).literal, self.value(given)
        if name == "builtins.float" and text in ("inf", "-inf"):
            return float(text)
        if name in _ROOTS and inner is not None and inner >= 0:
            return math.sqrt(inner)
        return inner if name in _KEEPING else None

    def _computed(self, node: cst.BinaryOperation) -> float | None:
        left, right = self.value(node.left), self.value(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.operator, cst.Divide):
            return left / right if right else None
        return left * right if isinstance(node.operator, cst.Multiply) else None

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
            (each.how is How.UNPACKED and each.value is not None and self._is_shape(each.value))
            or (each.assigned is not None and self.is_number(each.assigned))
            for each in bindings
        )

    def _is_shape(self, node: cst.BaseExpression) -> bool:
        return last_word(node.func if isinstance(node, cst.Call) else node) in ("shape", "size")
