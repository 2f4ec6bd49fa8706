"""Precision: the use of mixed, low and high precision in a file."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.vocabulary import Vocabulary
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_LOW: Final = re.compile(
    r"auto_?cast|amp(?<![a-z]amp)(?![a-z])|apex(?<![a-z]apex)(?![a-z])|\.half$|half_?tensor|fp_?16|"
    r"bf_?16|fp8|float_?16|mixed_?prec|half_?prec|grad_?scaler|loss_?scaler|native_?scaler|quantiz",
    re.MULTILINE,
)
"""Each alternative starts with a letter, so that the regex engine can skip other positions."""
_WIDE: Final = re.compile(
    r"\b(?:cfloat|cdouble|complex64|complex128|DoubleTensor|view_as_complex|stft|istft|cholesky|"
    r"slogdet|logdet|lu_solve|svd|eigh|triangular_solve)\b|\btorch\.(?:fft|linalg|inverse|det|qr)\b"
)
_AUTOCASTS: Final = frozenset({
    "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast",
})  # fmt: skip


class Precision(ValueAnalysis):
    """Finds what a file does about the precision of its arithmetic."""

    def __init__(self, values: KnownValues, vocabulary: Vocabulary) -> None:
        super().__init__(values)
        self.vocabulary = vocabulary

    @cached_property
    def mentions_low_precision(self) -> bool:
        """Whether code mentions mixed or low precision, of any library."""
        return self.vocabulary.has_lowered(_LOW)

    @cached_property
    def is_wide(self) -> bool:
        """Whether code needs complex numbers, float64, or what low precision lacks.

        Summing losses in float64 does not count.
        """
        if self.vocabulary.has(_WIDE):
            return True
        mentioned = any(word in self.tree.own_text for word in ("float64", "double"))
        return mentioned and any(self._widens(call) for call in self.tree.all(cst.Call))

    def _widens(self, call: cst.Call) -> bool:
        name = self.names.name(call.func)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "double":
            inner = call.func.value
            cut = isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute)
            if cut and inner.func.attr.value in ("detach", "sum", "mean"):  # type: ignore[attr-defined]
                return False
            return self.kinds.kind(inner) is not Kind.LOSS and not self._is_added_up(call)
        wide = [
            arg.value
            for arg in call.args
            if self.names.name(arg.value) in ("torch.float64", "torch.double")
        ]
        return bool(wide) and not (name == "torch.zeros" or _is_sum(call.func))

    def _is_added_up(self, call: cst.Call) -> bool:
        """Return whether a value is only added to a variable (`total = total + x.double()`)."""
        top: cst.CSTNode = call
        parent = self.tree.parent(top)
        while isinstance(parent, cst.BinaryOperation):
            top, parent = parent, self.tree.parent(parent)
        if isinstance(parent, cst.AugAssign):
            return isinstance(parent.operator, cst.AddAssign)
        return (
            isinstance(parent, cst.Assign)
            and isinstance(top, cst.BinaryOperation)
            and isinstance(top.operator, cst.Add)
            and parent.targets[0].target.deep_equals(top.left)
        )

    # -- autocast -------------------------------------------------------------

    @memoized(None)
    def autocast(self, node: cst.BaseExpression) -> cst.Call | None:
        """Return the `autocast` call that a context manager is, through names and choices."""
        if isinstance(node, cst.Call):
            if self.names.name(node.func) in _AUTOCASTS:
                return node
            return self._made_by(node)
        if isinstance(node, cst.IfExp):
            return self.autocast(node.body) or self.autocast(node.orelse)
        values = (each.assigned for each in self.functions.bindings(node))
        found = (self.autocast(each) for each in values if each is not None)
        return next((call for call in found if call is not None), None)

    def dtype(self, autocast: cst.Call) -> str | None:
        """Return the qualified name of the dtype passed to a call of `autocast`."""
        given = self.values.argument_node(autocast, "dtype")
        return self.names.name(given.value) if given is not None else None

    def _made_by(self, call: cst.Call) -> cst.Call | None:
        """Follow `amp = partial(torch.autocast, "cuda")` and results of methods of this file."""
        if self.functions.partial(call) in _AUTOCASTS:
            made = self.scopes.only(call.func).value
            return made if isinstance(made, cst.Call) else None
        definition = self.functions.definition(call.func)
        if isinstance(definition, cst.FunctionDef):
            returned = self.functions.returns(definition)
            if len(returned) == 1:
                return self.autocast(returned[0])
        return None


def _is_sum(func: cst.BaseExpression) -> bool:
    return isinstance(func, cst.Attribute) and func.attr.value in ("sum", "mean", "cumsum")
