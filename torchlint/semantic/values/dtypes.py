"""Dtypes: whether a tensor holds integers, judged by its expression."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import index_of, last_word, method_of
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis

_INTEGRAL: Final = frozenset(
    "eq ne gt lt ge le equal greater less not_equal greater_equal less_equal logical_and "
    "logical_or logical_not logical_xor isin isnan isinf isfinite argmax argmin argsort long "
    "int bool count_nonzero nonzero any all bincount size numel dim len".split()
)
_FLOATING: Final = frozenset(
    "float double half bfloat16 mean std var softmax log_softmax sigmoid tanh exp log sqrt "
    "norm true_divide div logsumexp".split()
)
_KEEPING: Final = frozenset(
    "sum cumsum prod max min view view_as reshape squeeze unsqueeze cpu cuda detach flatten t "
    "clone contiguous item expand expand_as expand_dims gather masked_select type_as abs".split()
)
_MASKING: Final = frozenset("eq ne gt ge lt le bool isnan isfinite isinf logical_not".split())
_PAIRS: Final = frozenset("max min topk sort kthvalue mode median".split())


class Dtypes(ValueAnalysis):
    """Separates tensors of integers (bools included) from tensors of floats."""

    @memoized(None)
    def is_integral(self, node: cst.CSTNode) -> bool | None:
        """Return whether an expression holds integers or bools; None if unknown."""
        if isinstance(node, (cst.Integer, cst.Comparison)):
            return True
        if isinstance(node, cst.Float) or self.kinds.kind(node) is Kind.LOSS:
            return False
        if isinstance(node, cst.BinaryOperation):
            if isinstance(node.operator, cst.Divide):
                return False
            return _mixed([self.is_integral(node.left), self.is_integral(node.right)])
        if isinstance(node, cst.UnaryOperation):
            return self.is_integral(node.expression)
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, cst.Attribute) and node.attr.value in ("data", "T", "indices"):
            return True if node.attr.value == "indices" else self.is_integral(node.value)
        if isinstance(node, cst.Subscript):
            return self._item(node)
        if isinstance(node, cst.Name):
            return _agreed(self._bound(binding) for binding in self.scopes.reaching(node))
        return None

    @memoized(True)
    def is_mask(self, node: cst.BaseExpression) -> bool:
        """Return whether a tensor certainly is boolean."""
        if isinstance(node, cst.UnaryOperation):
            return self.is_mask(node.expression)
        if isinstance(node, cst.BinaryOperation):
            bitwise = isinstance(node.operator, (cst.BitAnd, cst.BitOr))
            return bitwise and self.is_mask(node.left)
        if isinstance(node, cst.Call):
            return method_of(node) in _MASKING
        bindings = self.scopes.reaching(node) if isinstance(node, cst.Name) else ()
        return isinstance(node, cst.Comparison) or (
            bool(bindings)
            and all(
                each.how is How.ASSIGN
                and each.value is not None
                and not isinstance(each.value, cst.Name)
                and self.is_mask(each.value)
                for each in bindings
            )
        )

    def _call(self, node: cst.Call) -> bool | None:
        func = node.func
        name = self.names.name(func)
        last = last_word(func)
        if last in ("to", "type"):
            text = " ".join(str(self.names.name(arg.value)) for arg in node.args).lower()
            if "float" in text or "half" in text or "double" in text:
                return False
            if any(word in text for word in ("torch.int", "torch.long", "longtensor")):
                return True
        if last in _INTEGRAL:
            return True
        if last in _FLOATING:
            return False
        if last in _KEEPING or last == "to":
            if name is not None and name.startswith("torch."):
                return self.is_integral(node.args[0].value) if node.args else None
            return self.is_integral(func.value) if isinstance(func, cst.Attribute) else None
        return None

    def _item(self, node: cst.Subscript) -> bool | None:
        index = index_of(node)
        if isinstance(node.value, cst.Call) and isinstance(index, cst.Integer):
            found = self._of_pair(node.value, int(index.value))
            if found is not None:
                return found
        return self.is_integral(node.value)

    def _of_pair(self, call: cst.Call, index: int) -> bool | None:
        """Return the dtype of an element of `max(1)` and the like: values and indices."""
        return True if method_of(call) in _PAIRS and index == 1 else None

    def _bound(self, binding: Binding) -> bool | None:
        if binding.value is None:
            return None
        if binding.how is How.ASSIGN:
            return self.is_integral(binding.value)
        if binding.how is How.UNPACKED and isinstance(binding.value, cst.Call):
            return self._of_pair(binding.value, binding.path[0]) if binding.path else None
        return None


def _agreed(found: Iterable[bool | None]) -> bool | None:
    """Return the common answer of all bindings of a name."""
    kinds = set(found)
    return kinds.pop() if len(kinds) == 1 else None


def _mixed(sides: list[bool | None]) -> bool | None:
    """Return the dtype of arithmetic on two operands: a float makes it float."""
    if False in sides:
        return False
    return True if all(sides) else None
