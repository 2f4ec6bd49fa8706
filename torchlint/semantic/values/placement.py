"""Placement: tensors known to be in host memory, so that reading them is no sync."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Functions
from torchlint.semantic.scope.memo import Memo
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.values.iteration import Iteration
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.kinds import Kinds

__all__ = ["Placement"]

_MADE_ON_HOST: Final = frozenset(
    (
        "from_numpy tensor as_tensor zeros ones full arange linspace eye rand randn randint "
        "randperm empty FloatTensor LongTensor Tensor"
    ).split()
)
_TENSORS: Final = (Kind.TENSOR, Kind.LOSS)


class Placement:
    """Follows tensors from where they are created to where they are read."""

    def __init__(self, functions: Functions, kinds: Kinds, iteration: Iteration) -> None:
        self.functions = functions
        self.kinds = kinds
        self.iteration = iteration
        self.names = functions.names
        self.scopes = functions.scopes
        self._known = Memo(True, self.names.trail, self._on_host)

    def on_host(self, node: cst.BaseExpression) -> bool:
        """Return whether a tensor is known to be in host memory."""
        return self._known.answer(node)

    def _on_host(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Name):
            bindings = self.scopes.reaching(node)
            return bool(bindings) and all(self._bound(binding) for binding in bindings)
        if isinstance(node, cst.Call):
            return self._call(node)
        if isinstance(node, (cst.Attribute, cst.Subscript)):
            return self.on_host(node.value)
        if isinstance(node, cst.UnaryOperation):
            return self.on_host(node.expression)
        if isinstance(node, cst.BinaryOperation):
            return self._all_on_host([node.left, node.right])
        if isinstance(node, cst.Comparison):
            return self._all_on_host([node.left, *(c.comparator for c in node.comparisons)])
        return False

    def _all_on_host(self, operands: list[cst.BaseExpression]) -> bool:
        found = [self.on_host(each) for each in operands if not self._is_number(each)]
        return bool(found) and all(found)

    def _is_number(self, node: cst.BaseExpression) -> bool:
        return self.kinds.kind(node) in (Kind.NUMBER, Kind.STRING, Kind.NOTHING)

    def _call(self, node: cst.Call) -> bool:
        name = self.names.name(node.func)
        if name is not None and name.startswith("torch."):
            if any(arg.keyword is not None and arg.keyword.value == "device" for arg in node.args):
                return False
            tensors = [a.value for a in node.args if self.kinds.kind(a.value) in _TENSORS]
            if tensors:
                return all(self.on_host(each) for each in tensors)
            return name.rpartition(".")[2] in _MADE_ON_HOST
        if self.kinds.kind(node.func) is Kind.CRITERION:
            return self._all_on_host([arg.value for arg in node.args])
        if not isinstance(node.func, cst.Attribute) or name is not None:
            return False
        method = node.func.attr.value
        if method in ("cpu", "numpy"):
            return True
        if method == "to":
            return any(self._names_host(arg.value) for arg in node.args)
        if method in ("cuda", "xpu", "type_as"):
            return False
        if self.kinds.kind(node.func.value) not in _TENSORS:
            return False
        tensors = [a.value for a in node.args if self.kinds.kind(a.value) in _TENSORS]
        return all(self.on_host(each) for each in (node.func.value, *tensors))

    def _names_host(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Call) and self.names.name(node.func) == "torch.device":
            return any(self._names_host(arg.value) for arg in node.args[:1])
        return isinstance(node, cst.SimpleString) and node.value.strip("'\"") == "cpu"

    def _bound(self, binding: Binding) -> bool:
        value = binding.value
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            given = self.functions.given(binding.node)
            return bool(given) and all(self.on_host(each) for each in given)
        if value is None:
            return False
        if binding.how is How.LOOP:
            source, _ = self.iteration.source(value, binding.path)
            return source is not None and (self._is_plain_loader(source) or self.on_host(source))
        if binding.how in (How.ASSIGN, How.UNPACKED):
            return self.on_host(value)
        return False

    def _is_plain_loader(self, source: cst.BaseExpression) -> bool:
        """Return whether a loader's batches are used as it yields them, not moved first."""
        return (
            isinstance(source, (cst.Name, cst.Attribute, cst.Subscript))
            and self.kinds.kind(source) is Kind.LOADER
        )
