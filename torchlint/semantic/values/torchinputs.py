"""Torch inputs: what is a tensor because functions of torch take it, or by its methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.scope.scopes import Binding
from torchlint.semantic.syntax.methods import named_arguments

_FUNCTIONS: Final = frozenset(
    "abs amax amin argmax argmin argsort bmm clamp cos cosine_similarity cumsum exp "
    "flatten gather index_select isfinite isinf isnan log log_softmax logsumexp masked_select "
    "matmul max mean median min mm norm permute prod reshape sigmoid sin softmax sort sqrt "
    "square squeeze std sum tanh topk transpose unique unsqueeze var".split()
)
"""Functions of torch whose first argument is a tensor, never a number, a list or an array."""
_LAYERS: Final = "torch.nn.functional."
_METHODS: Final = frozenset(
    "detach requires_grad_ unsqueeze contiguous log_softmax argmax masked_fill backward "
    "is_cuda data_ptr eq scatter_ index_select clip_grad_norm_ long view_as expand_as type_as "
    "permute".split()
)
"""Methods that tensors have, and hardly anything else."""
_TELLING: Final = _METHODS - {"argmax", "backward", "clip_grad_norm_", "detach", "eq"}
"""Those that also tell what the name is whose method is called."""
_OVER_DIMENSIONS: Final = frozenset("sum mean max min argmin softmax norm std var prod".split())
"""Methods that take a `dim`; those of arrays take an `axis`."""


class TorchInputs(Analysis):
    """Finds tensors by the functions of torch that take them, and by their methods."""

    def is_tensors(self, method: cst.Attribute) -> bool:
        """Return whether a method that is called is one of tensors alone, or for its arguments."""
        word, call = method.attr.value, self.tree.parent(method)
        if word not in _OVER_DIMENSIONS or not isinstance(call, cst.Call):
            return word in _METHODS
        given = named_arguments(call, "dim")
        return any(isinstance(each, (cst.Integer, cst.UnaryOperation)) for each in given)

    def take(self, bindings: Iterable[Binding]) -> bool:
        """Return whether torch, or a method of tensors, takes the value of one of these."""
        return not self._bindings.isdisjoint(bindings)

    @cached_property
    def _bindings(self) -> frozenset[Binding]:
        reaching = map(self.scopes.reaching, self._names())
        return frozenset(found[0] for found in reaching if len(found) == 1)

    def _names(self) -> Iterator[cst.Name]:
        for word in (*_TELLING, "size"):
            for method in self.functions.attributes(word):
                call = self.tree.parent(method)
                sized = word != "size" or (isinstance(call, cst.Call) and len(call.args) == 1)
                of_torch = (self.names.name(method) or "").startswith("torch.")
                if sized and type(method.value) is cst.Name and not of_torch:
                    yield method.value
        for call in self.tree.all(cst.Call):
            first = call.args[0] if call.args else None
            if first is None or first.star or type(first.value) is not cst.Name:
                continue
            module, _, last = (self.names.name(call.func) or "").rpartition(".")
            if f"{module}." == _LAYERS or (module == "torch" and last in _FUNCTIONS):
                yield first.value
