"""Reductions: how a loss is reduced over a batch, and so whether it is one number or several."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding
from torchlint.semantic.syntax.methods import method_of, named_arguments, receiver_of
from torchlint.semantic.values.kind import Kind, called
from torchlint.semantic.values.known import ValueAnalysis
from torchlint.semantic.values.losses import sent
from torchlint.semantic.values.values import State

_WHOLE: Final = frozenset({"torch.mean", "torch.sum"})
_KEEPING: Final = (
    "to cuda cpu float double half clone detach div mul add sub div_ mul_ neg mean sum".split()
)
"""The methods of a tensor that give as many numbers, or several where they get a dimension."""
_ALL: Final = ("mean", "sum")


class Reductions(ValueAnalysis):
    """Answers how losses are reduced, and how many numbers they hold."""

    def word(self, call: cst.Call) -> str:
        """Return how a call of a loss, or its criterion, reduces; empty if that is not known."""
        words = [self._word(each) for each in (call, *self.origins.of(call.func).values)]
        return next((word for word in words if word != "mean"), "mean")

    def _word(self, call: cst.BaseExpression) -> str:
        if not isinstance(call, cst.Call):
            return "mean"
        each, average, word = (
            self.values.argument(call, name) for name in ("reduce", "size_average", "reduction")
        )
        if each.equals(False):
            return "none"
        if word.state is not State.ABSENT:
            return word.literal if isinstance(word.literal, str) else ""
        if average.state is State.ABSENT or average.equals(True) or average.equals(None):
            return "mean"
        return "sum" if average.equals(False) else ""

    @memoized(None)
    def is_one_number(self, loss: cst.BaseExpression) -> bool | None:
        """Return whether a loss is one number, False where it has several, None if not known."""
        bound = self._bound(loss)
        for one, sent_so in ((False, self._with_gradient), (True, self._alone)):
            if bound and sent_so.issuperset(bound):
                return one
        origin = self.origins.of(loss)
        found = {self._is_made_one(each) for each in origin.values}
        return _together(found if origin.complete else {None, *found})

    def _is_made_one(self, value: cst.BaseExpression) -> bool | None:
        """Return whether the expression that makes a loss gives one number."""
        if isinstance(value, cst.UnaryOperation):
            return self.is_one_number(value.expression)
        if isinstance(value, cst.BinaryOperation):
            return _together({self.is_one_number(side) for side in (value.left, value.right)})
        if not isinstance(value, cst.Call):
            return None
        name = self.names.name(value.func)
        if name is not None and called(name) is not Kind.LOSS:
            return True if name in _WHOLE and len(value.args) == 1 else None
        tensor = receiver_of(value, *_KEEPING) if name is None else None
        if tensor is not None and self.kinds.kind(tensor) in (Kind.TENSOR, Kind.LOSS):
            whole = receiver_of(value, *_ALL) is not None and not value.args
            return True if whole else self.is_one_number(tensor)
        word = self.word(value)
        if word == "none":
            return False
        made = self.values.value_of(value.func).node
        known = name or (self.names.name(made.func) if isinstance(made, cst.Call) else None) or ""
        return True if word and known.startswith("torch.nn.") else None

    @cached_property
    def _alone(self) -> frozenset[Binding]:
        return self._sent(with_gradient=False)

    @cached_property
    def _with_gradient(self) -> frozenset[Binding]:
        return self._sent(with_gradient=True)

    def _sent(self, with_gradient: bool) -> frozenset[Binding]:
        """Return the names whose `backward()` gets a gradient or starts from their mean, or not."""
        calls = [each for each in self.tree.all(cst.Call) if method_of(each) == "backward"]
        return frozenset(
            binding
            for call in calls
            if self.functions.callee(call) is None
            for loss in list(sent(call))[-1:]
            for whole in (receiver_of(loss, *_ALL),)
            if bool(whole or (loss is receiver_of(call) and _has_gradient(call))) is with_gradient
            for binding in self._bound(whole or loss)
        )

    def _bound(self, loss: cst.BaseExpression) -> tuple[Binding, ...]:
        """Return what a name, or an attribute of an object in view, may be bound to."""
        if isinstance(loss, cst.Attribute):
            return tuple(self.functions.attribute(loss))
        return tuple(self.scopes.reaching(loss))


def _has_gradient(call: cst.Call) -> bool:
    plain = any(arg.keyword is None for arg in call.args)
    return plain or bool(named_arguments(call, "gradient"))


def _together(found: set[bool | None]) -> bool | None:
    """Return whether all that a loss may be, or is made of, is one number."""
    return False if False in found else True if found == {True} else None
