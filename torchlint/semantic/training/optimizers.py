"""Optimizers: where they are created, what they are called, what steps and restores them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.instances import PREPARING
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.scope.labels import label
from torchlint.semantic.scope.libraries import DICTIONARIES
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import method_of, receiver_of, word_of
from torchlint.semantic.values.calls import CallSite
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues
from torchlint.semantic.values.unread import Unread

_NAMED: Final = frozenset("optim optimizer optimiser optimizers opt optims".split())
_SAVING: Final = frozenset("save saves checkpoint ckpt snapshot dump".split())
_RESTORES: Final = re.compile(r"load|resum|restor", re.IGNORECASE)
_OPTIMIZER: Final = re.compile(r"torch\.optim\.(?!lr_scheduler\.|swa_utils\.)(?:\w+\.)*[A-Z]\w*")
_ADDING: Final = "add_param_group"
_METHODS: Final = ("load_state_dict", "state_dict", "save_state", _ADDING)
_RESTORING: Final = frozenset("load loads resume restore autoload autoresume".split())

_ASIDE: Final = frozenset(
    "state_dict load_state_dict zero_grad add_param_group param_groups defaults".split()
)
"""What code may ask of an optimizer that does not step it."""


class Optimizer(CallSite):
    """One call that creates one of torch's optimizers, as rules query it."""

    def __init__(self, optimizers: Optimizers, node: cst.Call) -> None:
        super().__init__(optimizers.origins.values, node)
        self._optimizers = optimizers

    @property
    def label(self) -> str:
        """The user's name for the optimizer."""
        return label(self._optimizers.tree, self._optimizers.scopes, self.node, "optimizer")

    @property
    def tunes_tensors(self) -> bool:
        """Whether it gets a few tensors by name, not the parts of a network."""
        params = self.given("params", 0)
        return params is not None and self._optimizers.are_tensors(params.value)

    @property
    def restores(self) -> list[cst.Call]:
        """The calls that may load a saved state into it."""
        return self._optimizers.acting_on(self.node, self._optimizers.restores)

    @property
    def saves(self) -> list[cst.Call]:
        """The calls that may take its state, or pass it to a function that saves."""
        return self._optimizers.acting_on(self.node, self._optimizers.saves)

    @property
    def gets_more_groups(self) -> bool:
        """Whether the script may give it parameters later."""
        added = map(self._optimizers.tree.parent, self._optimizers.functions.attributes(_ADDING))
        calls = [each for each in added if isinstance(each, cst.Call)]
        return bool(self._optimizers.acting_on(self.node, calls))

    @property
    def is_stepped_unseen(self) -> bool:
        """Whether code that this file does not show uses it."""
        return self._optimizers.hidden(self.node)


class Optimizers(LoopAnalysis):
    """Finds the optimizers of a file and what is done to them."""

    def __iter__(self) -> Iterator[Optimizer]:
        """Yield the optimizers of torch that the file makes, but those it only keeps."""
        return iter(self._all)

    @cached_property
    def _all(self) -> tuple[Optimizer, ...]:
        unstepped = Unstepped(self.values)
        return tuple(
            Optimizer(self, call)
            for call in self.tree.all(cst.Call)
            if _OPTIMIZER.fullmatch(self.names.name(call.func) or "")
            and not unstepped.is_kept_by(call)
        )

    def acting_on(self, made: cst.Call, calls: Iterable[cst.Call]) -> list[cst.Call]:
        """Return the calls among some that may act on the optimizer that a call makes."""
        return [call for call in calls if self._may_act_on(made, call)]

    def _may_act_on(self, made: cst.Call, call: cst.Call) -> bool:
        """Return whether a call is a method of an optimizer, or a function that gets it."""
        owner = receiver_of(call, *_METHODS)
        subjects = [arg.value for arg in call.args if self.kinds.kind(arg.value) is Kind.OPTIMIZER]
        known = map(self.made_by, subjects if owner is None else [owner])
        return any(each is None or made in each for each in known)

    def are_tensors(self, value: cst.BaseExpression) -> bool:
        """Return whether parameters are a list of tensors by name, or of groups of such."""
        origin = self.origins.of(value)
        return origin.complete and all(map(self._lists_tensors, origin.values))

    def _lists_tensors(self, value: cst.BaseExpression) -> bool:
        if not isinstance(value, (cst.List, cst.Tuple)) or not value.elements:
            return False
        return all(
            isinstance(element, cst.Element)
            and (self._is_tensor(element.value) or self._groups_tensors(element.value))
            for element in value.elements
        )

    def _groups_tensors(self, group: cst.BaseExpression) -> bool:
        """Return whether a group of parameters holds tensors by name."""
        return isinstance(group, cst.Dict) and any(
            isinstance(each, cst.DictElement)
            and isinstance(each.key, cst.SimpleString)
            and each.key.evaluated_value == "params"
            and self._lists_tensors(each.value)
            for each in group.elements
        )

    def _is_tensor(self, node: cst.BaseExpression) -> bool:
        """Return whether a parameter is a tensor with a name, not a group of parameters."""
        if isinstance(node, cst.Call):
            func = node.func
            return isinstance(func, cst.Attribute) and func.attr.value == "requires_grad_"
        if not isinstance(node, (cst.Name, cst.Attribute)):
            return False
        made = self.origins.of(node).values
        return not any(isinstance(value, (cst.Dict, cst.DictComp)) for value in made) and not any(
            self.names.name(value.func) in DICTIONARIES
            for value in made
            if isinstance(value, cst.Call)
        )

    def made_by(self, node: cst.BaseExpression) -> tuple[cst.Call, ...] | None:
        """Return the optimizer calls that an expression can come from, None if unknown."""
        origin = self.origins.of(node)
        found = [value for value in origin.values if isinstance(value, cst.Call)]
        if not origin.complete or len(found) != len(origin.values) or not found:
            return None
        if any(not (self.names.name(c.func) or "").startswith("torch.optim.") for c in found):
            return None
        return tuple(found)

    @cached_property
    def steps(self) -> tuple[cst.Call, ...]:
        """The calls that step an optimizer, directly or through a gradient scaler."""
        return tuple(filter(self.loops.is_update, self.tree.all(cst.Call)))

    @cached_property
    def restores(self) -> tuple[cst.Call, ...]:
        """The calls that may load a saved state into an optimizer."""
        return tuple(call for call in self.tree.all(cst.Call) if self._restores(call))

    def _restores(self, call: cst.Call) -> bool:
        func = call.func
        word = word_of(call)
        if not _RESTORES.search(word):
            return False
        if word == "load_state_dict" and type(func) is cst.Attribute:
            kind = self.kinds.kind(func.value)
            if kind is not Kind.UNKNOWN:
                return kind is Kind.OPTIMIZER
            return self._is_named_optimizer(func.value, call)
        if not _RESTORING.intersection(words(word)) or self.functions.callee(call) is not None:
            return False
        return any(self.kinds.kind(arg.value) is Kind.OPTIMIZER for arg in call.args)

    @cached_property
    def saves(self) -> tuple[cst.Call, ...]:
        """The calls that take the state of an optimizer, or pass it to a function that saves."""
        return tuple(call for call in self.tree.all(cst.Call) if self._saves(call))

    def _saves(self, call: cst.Call) -> bool:
        func = call.func
        if type(func) is cst.Attribute and func.attr.value in ("state_dict", "save_state"):
            kind = self.kinds.kind(func.value)
            if kind is not Kind.UNKNOWN:
                return kind is Kind.OPTIMIZER
            return func.attr.value == "save_state" or any(
                each in _NAMED for each in words(self.tree.code(func.value))
            )
        return not _SAVING.isdisjoint(words(word_of(call))) and any(
            self.kinds.kind(arg.value) is Kind.OPTIMIZER for arg in call.args
        )

    def _is_named_optimizer(self, owner: cst.BaseExpression, call: cst.Call) -> bool:
        """Return whether the restored object, or its state, is named like an optimizer."""
        if any(word in _NAMED for word in words(self.tree.code(owner))):
            return True
        return any("optim" in text.value for text in self.tree.within(call, cst.SimpleString))

    def hidden(self, call: cst.Call) -> bool:
        """Return whether an optimizer is used by code that this file does not show.

        An object stores it, or a function returns it, and nothing in the file steps an optimizer.
        """
        if self.steps:
            return False
        function, line = self.scopes.function(call), self.tree.smallest_statement(call)
        if not isinstance(line, cst.Assign):
            return isinstance(line, cst.Return)
        targets = [each.target for each in line.targets]
        named = {target.value for target in targets if isinstance(target, cst.Name)}
        if len(named) < len(targets):
            return True
        return (
            function is not None
            and not self.functions.callers(function)
            and any(
                name.value in named
                for value in self.functions.returns(function)
                for name in self.tree.within(value, cst.Name)
            )
        )


class Unstepped(Unread):
    """Tells which optimizers are made, saved, loaded or cleared at most."""

    def __init__(self, values: KnownValues) -> None:
        super().__init__(values.functions)
        self.kinds = values.kinds

    def is_made_by(self, call: cst.Call) -> bool:
        """Return whether nothing steps the optimizer that a call makes."""
        holder = self.tree.parent(call)
        return isinstance(holder, cst.Assign) and self.are_unread(holder)

    def is_kept_by(self, call: cst.Call) -> bool:
        """Return whether the optimizer that a call makes is used, for something but steps."""
        holder = self.tree.parent(call)
        target = holder.targets[0].target if isinstance(holder, cst.Assign) else None
        stored = self.scopes.stored(target) if target is not None else None
        used = stored is not None and any(True for _ in self.scopes.readers(stored))
        return used and self.is_made_by(call)

    def is_idle(self, use: cst.Name) -> bool:
        """Return whether a use of an optimizer neither steps it nor hands it on."""
        holder = self.tree.parent(use)
        if isinstance(holder, cst.Attribute):
            return holder.attr.value in _ASIDE
        taker = self.tree.taker(use)
        if isinstance(taker, cst.Call) and method_of(taker) in PREPARING:
            at = next(i for i, each in enumerate(taker.args) if each.value is use)
            return self._is_given_back_unread(taker, at, len(taker.args))
        is_scheduled = taker is not None and self.kinds.kind(taker) is Kind.SCHEDULER
        return is_scheduled or super().is_idle(use)
