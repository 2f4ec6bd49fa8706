"""Annotations: the kinds that the annotations of parameters, results and variables tell."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.syntax.methods import index_of
from torchlint.semantic.values.kind import Kind, called, derived, is_module_class, joined

_ANNOTATIONS: Final = {
    "torch.Tensor": Kind.TENSOR,
    "torch.FloatTensor": Kind.TENSOR,
    "torch.LongTensor": Kind.TENSOR,
    "numpy.ndarray": Kind.NDARRAY,
    "numpy.typing.NDArray": Kind.NDARRAY,
    "torch.device": Kind.DEVICE,
    "torch.optim.Optimizer": Kind.OPTIMIZER,
    "torch.optim.lr_scheduler.LRScheduler": Kind.SCHEDULER,
    "torch.optim.lr_scheduler._LRScheduler": Kind.SCHEDULER,
    "builtins.int": Kind.NUMBER,
    "builtins.float": Kind.NUMBER,
    "builtins.bool": Kind.NUMBER,
    "builtins.str": Kind.STRING,
    "builtins.list": Kind.SEQUENCE,
    "builtins.tuple": Kind.SEQUENCE,
    "builtins.dict": Kind.MAPPING,
    "typing.List": Kind.SEQUENCE,
    "typing.Tuple": Kind.SEQUENCE,
    "typing.Sequence": Kind.SEQUENCE,
    "typing.Dict": Kind.MAPPING,
}


class Annotations(Analysis):
    """Finds the kind that an annotation tells."""

    def kind(self, node: cst.BaseExpression) -> Kind:
        """Return the kind that an annotation tells, UNKNOWN if it tells none."""
        if type(node) is cst.SimpleString:
            return self._named(self.names.spelled(node.value.strip("'\""), node))
        if type(node) is cst.Subscript:
            return self._generic(node)
        if type(node) is cst.BinaryOperation:
            return joined([self.kind(node.left), self.kind(node.right)])
        if type(node) is cst.Name and node.value == "None":
            return Kind.NOTHING
        name = self.names.name(node)
        if name is None:
            owner = self.functions.definition(node)
            bases = self.functions.bases(owner) if type(owner) is cst.ClassDef else []
            return derived(bases)
        return self._named(name)

    def _named(self, name: str | None) -> Kind:
        if name is None:
            return Kind.UNKNOWN
        if is_module_class(name):
            return derived([name])
        return _ANNOTATIONS.get(
            name, derived([name]) if name.startswith("torch.") else called(name)
        )

    def _generic(self, node: cst.Subscript) -> Kind:
        if self.names.name(node.value) in ("typing.Optional", "typing.Annotated"):
            inner = index_of(node)
            return self.kind(inner) if inner is not None else Kind.UNKNOWN
        return self.kind(node.value)
