"""Torch inputs: the names whose value a function of torch takes as a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.scope.scopes import Binding

_FUNCTIONS: Final = frozenset(
    "abs amax amin argmax argmin argsort bmm clamp cos cosine_similarity cumsum exp "
    "flatten gather index_select isfinite isinf isnan log log_softmax logsumexp masked_select "
    "matmul max mean median min mm norm permute prod reshape sigmoid sin softmax sort sqrt "
    "square squeeze std sum tanh topk transpose unique unsqueeze var".split()
)
"""Functions of torch whose first argument is a tensor, never a number, a list or an array."""
_LAYERS: Final = "torch.nn.functional."


class TorchInputs(Analysis):
    """Finds the bindings of tensors by the functions of torch that take their value."""

    def take(self, bindings: Iterable[Binding]) -> bool:
        """Return whether a function of torch takes the value of one of these bindings."""
        return not self._bindings.isdisjoint(bindings)

    @cached_property
    def _bindings(self) -> frozenset[Binding]:
        reaching = map(self.scopes.reaching, self._names())
        return frozenset(found[0] for found in reaching if len(found) == 1)

    def _names(self) -> Iterator[cst.Name]:
        for call in self.tree.all(cst.Call):
            first = call.args[0] if call.args else None
            if first is None or first.star or type(first.value) is not cst.Name:
                continue
            module, _, last = (self.names.name(call.func) or "").rpartition(".")
            if f"{module}." == _LAYERS or (module == "torch" and last in _FUNCTIONS):
                yield first.value
