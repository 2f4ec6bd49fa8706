"""Recorded: tensors that autograd is known to have recorded the computation of."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind

_CUTS: Final = frozenset(
    "detach detach_ argmax argmin argsort eq ne gt ge lt le isnan isfinite isinf size dim "
    "new new_tensor new_zeros new_ones new_empty new_full zeros_like ones_like empty_like "
    "full_like rand_like randn_like randint_like".split()
)
_VIEWS: Final = frozenset("T mT real imag logits loss last_hidden_state".split())


class Recorded(LoopAnalysis):
    """Follows a tensor back to the networks and losses that it was computed by."""

    @memoized(False)
    def of(self, node: cst.BaseExpression) -> bool:
        """Return whether a tensor is known to be the result of a recorded computation."""
        if isinstance(node, cst.Name):
            bindings = self.scopes.reaching(node)
            return bool(bindings) and all(self._is_assigned(each) for each in bindings)
        if isinstance(node, cst.Call):
            volatile = self.gradients.is_volatile(self.scopes.home(node))
            off = volatile or self.gradients.grad(node) is Grad.OFF
            return not off and self._of_call(node)
        if isinstance(node, cst.BinaryOperation):
            return self.of(node.left) or self.of(node.right)
        if isinstance(node, cst.UnaryOperation):
            return self.of(node.expression)
        if isinstance(node, cst.Subscript):
            return self.of(node.value)
        return isinstance(node, cst.Attribute) and node.attr.value in _VIEWS and self.of(node.value)

    def _is_assigned(self, binding: Binding) -> bool:
        """Return whether a binding assigns the result of a recorded computation."""
        if binding.value is None or binding.how not in (How.ASSIGN, How.UNPACKED, How.AUGMENTED):
            return False
        return self.of(binding.value)

    def _of_call(self, call: cst.Call) -> bool:
        if self.loops.module_call(call) is not None or self.kinds.kind(call) is Kind.LOSS:
            return True
        name, func = self.names.name(call.func), call.func
        if name is not None:
            computes = name.startswith("torch.") and name.rpartition(".")[2] not in _CUTS
            return computes and any(self.of(arg.value) for arg in call.args)
        if not isinstance(func, cst.Attribute) or func.attr.value in _CUTS:
            return False
        return self.kinds.kind(call) in (Kind.TENSOR, Kind.LOSS) and self.of(func.value)
