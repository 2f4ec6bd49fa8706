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
        flags = [flag for flag in (each, average) if flag.state is not State.ABSENT]
        if any(not flag.equals(None) for flag in flags):
            known = all(flag.is_literal for flag in flags)
            how = "none" if each.equals(False) else "sum" if average.equals(False) else "mean"
            return how if known else ""
        if word.state is State.ABSENT:
            return "mean"
        return word.literal if isinstance(word.literal, str) else ""

    @memoized(None)
    def is_one_number(self, loss: cst.BaseExpression) -> bool | None:
        """Return whether a loss is one number, False where it has several, None if not known."""
        sent_alone = {self._sent.get(each) for each in self._bound(loss)}
        if sent_alone and None not in sent_alone:
            return _together(sent_alone)
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
    def _sent(self) -> dict[Binding, bool]:
        """Whether what goes backward does so as one number: itself, and without a gradient."""
        found: dict[Binding, bool] = {}
        for call in self.tree.all(cst.Call):
            if method_of(call) == "backward" and self.functions.callee(call) is None:
                *_, loss = sent(call)
                whole = receiver_of(loss, *_ALL)
                gradient = any(arg.keyword is None for arg in call.args)
                gradient = gradient or bool(named_arguments(call, "gradient"))
                alone = whole is None and not (gradient and loss is receiver_of(call))
                for binding in self._bound(whole or loss):
                    found[binding] = alone and found.get(binding, True)
        return found

    def _bound(self, loss: cst.BaseExpression) -> tuple[Binding, ...]:
        """Return what a name, or an attribute of an object in view, may be bound to."""
        if isinstance(loss, cst.Attribute):
            return tuple(self.functions.attribute(loss))
        return tuple(self.scopes.reaching(loss))


def _together(found: set[bool | None]) -> bool | None:
    """Return whether all that a loss may be, or is made of, is one number."""
    return False if False in found else True if found == {True} else None
