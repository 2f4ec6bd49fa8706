"""Reductions: how a loss is reduced over a batch, and so whether it is one number or several."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding
from torchlint.semantic.syntax.methods import method_of, named_arguments, receiver_of
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis
from torchlint.semantic.values.losses import sent
from torchlint.semantic.values.values import State

_FLAGS: Final = ("reduce", "size_average")
_ALL: Final = ("mean", "sum")
_WHOLE: Final = ("torch.mean", "torch.sum")
_KEEPING: Final = "to cuda cpu float double half clone detach div mul add sub div_ mul_ neg".split()
"""The methods of a tensor that give as many numbers."""


class Reductions(ValueAnalysis):
    """Answers how losses are reduced, and how many numbers they hold."""

    def word(self, call: cst.Call) -> str:
        """Return how a call of a loss, or its criterion, reduces; empty if that is not known."""
        makers = [call, *self.origins.of(call.func).values]
        words = (self._word(each) for each in makers if isinstance(each, cst.Call))
        return next((word for word in words if word != "mean"), "mean")

    def _word(self, call: cst.Call) -> str:
        flags = [self.values.argument(call, name) for name in _FLAGS]
        if any(flag.state is not State.ABSENT and not flag.equals(None) for flag in flags):
            if not all(flag.state is State.ABSENT or flag.is_literal for flag in flags):
                return ""
            each, average = flags
            return "none" if each.equals(False) else "sum" if average.equals(False) else "mean"
        word = self.values.argument(call, "reduction")
        if word.state is State.ABSENT:
            return "mean"
        return str(word.literal) if word.is_literal else ""

    @memoized(None)
    def is_one_number(self, loss: cst.BaseExpression) -> bool | None:
        """Return whether a loss is one number, False where it has several, None if not known."""
        found = {self._sent.get(each) for each in self.functions.bindings(loss)}
        if not found or None in found:
            origin = self.origins.of(loss)
            found = {self._is_made_one(each) for each in origin.values}
            found |= set() if origin.complete else {None}
        return False if False in found else True if found == {True} else None

    def _is_made_one(self, value: cst.BaseExpression) -> bool | None:
        """Return whether the expression that makes a loss gives one number."""
        if isinstance(value, cst.BinaryOperation):
            sides = {self.is_one_number(side) for side in (value.left, value.right)}
            return False if False in sides else True if sides == {True} else None
        if not isinstance(value, cst.Call):
            return None
        name, tensor = self.names.name(value.func), receiver_of(value, *_KEEPING, *_ALL)
        if name is None and tensor is not None:
            whole = method_of(value) in _ALL and not value.args
            return True if whole else self.is_one_number(tensor)
        if name in _WHOLE:
            return True if len(value.args) == 1 else None
        word, made = self.word(value), self.values.value_of(value.func).node
        if word == "none":
            return False
        by_torch = name or (self.names.name(made.func) if isinstance(made, cst.Call) else "") or ""
        is_loss = by_torch.startswith("torch.nn.") and self.kinds.kind(value) is Kind.LOSS
        return True if word and is_loss else None

    @cached_property
    def _sent(self) -> dict[Binding, bool]:
        """Whether what goes backward does so as one number: itself, and without a gradient."""
        found: dict[Binding, bool] = {}
        for call in self.tree.all(cst.Call):
            if method_of(call) == "backward" and self.functions.callee(call) is None:
                *_, loss = sent(call)
                whole = receiver_of(loss, *_ALL)
                gradient = [arg for arg in call.args if arg.keyword is None]
                given = bool(gradient or named_arguments(call, "gradient"))
                alone = whole is None and not (given and loss is receiver_of(call))
                for binding in self.functions.bindings(whole or loss):
                    found[binding] = alone and found.get(binding, True)
        return found
