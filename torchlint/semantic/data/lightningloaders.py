"""Lightning's loaders: those that its trainer takes from hooks, or is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.scope.limits import CALLERS
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.values.calls import CallSite
from torchlint.semantic.values.known import ValueAnalysis
from torchlint.semantic.values.values import State

_SERVED: Final = re.compile(
    r"(?:lightning(?:\.pytorch)?|pytorch_lightning)\.(?:\w+\.)*Lightning(?:Data)?Module"
)
_STEP: Final = "training_step"
_HOOKS: Final = ("train_dataloader", "val_dataloader")
TRAINER: Final = re.compile(r"(?:lightning(?:\.pytorch)?|pytorch_lightning)\.(?:\w+\.)*Trainer")
_RELOADING: Final = ("reload_dataloaders_every_n_epochs", "reload_dataloaders_every_epoch")
"""The options of Lightning's trainer that make it ask for new loaders."""


class LightningLoaders(ValueAnalysis):
    """Finds the hooks and the trainers through which Lightning gets loaders."""

    def hooks(
        self, function: cst.FunctionDef | None, depth: int = CALLERS
    ) -> Iterator[cst.FunctionDef]:
        """Yield the methods from which Lightning takes a loader for all epochs."""
        if function is None or not depth:
            return
        owner = self.scopes.class_of(function)
        if owner is not None and function.name.value in _HOOKS:
            served = any(map(_SERVED.fullmatch, self.functions.bases(owner)))
            if served and not self._is_asked_each_epoch(owner):
                yield function
        for caller in self.functions.callers(function):
            yield from self.hooks(self.scopes.function(caller), depth - 1)

    def _is_asked_each_epoch(self, owner: cst.ClassDef) -> bool:
        """Return whether the trainers of a class take new loaders every epoch, or have one epoch.

        They are the trainers that fit an instance of it, or all in view where none is seen to.
        """
        trainers = [
            CallSite(self.values, call)
            for call in self.tree.all(cst.Call)
            if TRAINER.fullmatch(self.names.name(call.func) or "")
        ]
        fitting = {id(value) for value in self._fitting(owner)}
        known = [each for each in trainers if id(each.node) in fitting] or trainers
        return bool(known) and all(map(takes_new_loaders, known))

    def fitting(self, function: cst.FunctionDef) -> Iterator[cst.BaseExpression]:
        """Yield the loaders from which Lightning takes the batches of a `training_step`."""
        owner = self.scopes.class_of(function)
        if owner is None or function.name.value != _STEP:
            return
        for call in self._fits(owner):
            given = self.values.argument_node(call, _HOOKS[0] + "s", 1)
            given = given or self.values.argument_node(call, "datamodule")
            source = given.value if given is not None else None
            holder = owner if source is None else self.functions.instance_of(source)
            hook = self.functions.method(holder, _HOOKS[0]) if holder is not None else None
            if hook is not None:
                yield from self.functions.returns(hook)
            elif source is not None:
                yield source

    def _fits(self, owner: cst.ClassDef) -> Iterator[cst.Call]:
        """Yield the calls that fit an instance of a class."""
        for call in self.tree.all(cst.Call):
            if method_of(call) == "fit":
                if any(self.functions.instance_of(arg.value) is owner for arg in call.args):
                    yield call

    def _fitting(self, owner: cst.ClassDef) -> Iterator[cst.BaseExpression]:
        """Yield the objects that fit an instance of a class."""
        for call in self._fits(owner):
            assert isinstance(call.func, cst.Attribute)
            yield from self.origins.of(call.func.value).values


def takes_new_loaders(trainer: CallSite) -> bool:
    """Return whether a trainer of Lightning asks for loaders again, or runs for one epoch."""
    if trainer.argument("max_epochs").equals(1):
        return True
    asked = [trainer.argument(name) for name in _RELOADING]
    known = (each for each in asked if each.state in (State.KNOWN, State.DECIDED))
    return any(not each.equals(0) for each in known)
