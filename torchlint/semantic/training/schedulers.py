"""Schedulers: how learning-rate schedulers are created, and where they are stepped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.syntax.methods import is_none
from torchlint.semantic.values.kind import Kind, derived
from torchlint.semantic.values.known import ValueAnalysis


class Schedule(NamedTuple):
    """One way in which a scheduler is created.

    `name` is the class of torch (`StepLR`), "" for a subclass in this file or for a factory
    outside it.
    """

    call: cst.Call
    name: str
    optimizer: cst.BaseExpression | None
    in_sight: bool


class SchedulerStep(NamedTuple):
    """A call of a scheduler's `step`, with the ways in which the scheduler is created."""

    call: cst.Call
    scheduler: cst.BaseExpression
    made: tuple[Schedule, ...]

    @property
    def names(self) -> frozenset[str]:
        """The torch classes that the scheduler can have; empty if not all are known."""
        shown = bool(self.made) and all(each.in_sight and each.name for each in self.made)
        return frozenset(each.name for each in self.made) if shown else frozenset()


_OF_TORCH: Final = re.compile(r"torch\.optim\.(?:lr_scheduler|swa_utils)\.(?P<name>[A-Z]\w*|SWALR)")
_OF_FRAMEWORKS: Final = re.compile(
    r"(?:transformers|diffusers)\.(?:optimization\.)?get_\w*schedule\w*"
)
"""Factories whose schedulers are a `LambdaLR`, but for one that follows a metric."""
_COUNTED: Final = frozenset({"last_epoch", "_step_count"})
"""Counters that a scheduler updates itself."""
_UNSEEN_CLASS: Final = re.compile(r"\.(?:\w+\.)*[A-Z]\w*")
"""A class of the project that is not in view: it may keep its rates in its own way."""
_OTHER_WAYS: Final = ("timm.", "fvcore.", "mmcv.", "mmengine.", "diffusers.", "tensorflow.", "jax.")


class Schedulers(ValueAnalysis):
    """Finds the schedulers of a file and their steps."""

    @cached_property
    def made(self) -> tuple[Schedule, ...]:
        """Every scheduler of torch's own classes that the file creates."""
        found = []
        for call in self.tree.all(cst.Call):
            name = self.names.name(call.func) or ""
            if _OF_TORCH.fullmatch(name):
                schedule = self._schedule(call)
                if schedule is not None:
                    found.append(schedule)
        return tuple(found)

    @cached_property
    def steps(self) -> tuple[SchedulerStep, ...]:
        """Every call that steps a scheduler of torch."""
        return tuple(self._steps())

    def _steps(self) -> Iterator[SchedulerStep]:
        for call in self.tree.all(cst.Call):
            func = call.func
            if not isinstance(func, cst.Attribute) or func.attr.value != "step":
                continue
            if self.kinds.kind(func.value) not in (Kind.SCHEDULER, Kind.UNKNOWN):
                continue
            if self._is_in_scheduler(call):
                continue
            made = self.of(func.value)
            hidden = self.kinds.kind(func.value) is Kind.SCHEDULER
            if made or (made is not None and hidden):
                yield SchedulerStep(call, func.value, made)

    def _is_in_scheduler(self, node: cst.CSTNode) -> bool:
        """Return whether a node is in a scheduler class, which may wrap another scheduler."""
        owner = self.scopes.class_of(node)
        return owner is not None and derived(self.functions.bases(owner)) is Kind.SCHEDULER

    def of(self, scheduler: cst.BaseExpression) -> tuple[Schedule, ...] | None:
        """Return the ways in which a scheduler can be created; None for a custom scheduler.

        Empty if the file shows none of them.
        """
        found = []
        for value in self.origins.of(scheduler).values:
            if is_none(value):
                continue
            made = self._schedule(value) if isinstance(value, cst.Call) else None
            if made is None:
                return None
            found.append(made)
        return tuple(found)

    def is_set_by_hand(self, scheduler: cst.BaseExpression) -> bool:
        """Return whether the file assigns to a scheduler's own counters (`last_epoch`)."""
        return any(self._is_same(each, scheduler) for each in self._written)

    @cached_property
    def _written(self) -> tuple[cst.BaseExpression, ...]:
        """The schedulers whose counters the file assigns to."""
        return tuple(
            each.value
            for word in sorted(_COUNTED)
            for each in self.functions.attributes(word)
            if self.scopes.stored(each) is not None
        )

    def _is_same(self, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
        """Return whether two expressions have the same code in one place, or the same origin."""
        path = dotted(one)
        if path and path == dotted(other):
            near = self.scopes.home(one) is self.scopes.home(other)
            if near or path.startswith("self."):
                return True
        made = {id(value) for value in self.origins.of(one).values}
        return any(id(value) in made for value in self.origins.of(other).values)

    def _schedule(self, call: cst.Call) -> Schedule | None:
        name = self.names.name(call.func) or ""
        of_torch = _OF_TORCH.fullmatch(name)
        if of_torch is not None:
            return Schedule(call, of_torch["name"], self._optimizer(call), in_sight=True)
        if _OF_FRAMEWORKS.fullmatch(name):
            return Schedule(call, "LambdaLR", self._optimizer(call), in_sight=True)
        if name.startswith(_OTHER_WAYS) or _UNSEEN_CLASS.fullmatch(name):
            return None
        owner = self.functions.definition(call.func)
        if isinstance(owner, cst.ClassDef):
            if derived(self.functions.bases(owner)) is not Kind.SCHEDULER:
                return None
            return Schedule(call, "", self._optimizer(call), in_sight=True)
        optimizer = self._optimizer(call)
        if optimizer is None or self.kinds.kind(optimizer) is not Kind.OPTIMIZER:
            return None
        return Schedule(call, "", optimizer, in_sight=False)

    def _optimizer(self, call: cst.Call) -> cst.BaseExpression | None:
        given = self.values.argument_node(call, "optimizer", 0)
        if given is not None and self.names.name(call.func) != (
            "torch.optim.lr_scheduler.ChainedScheduler"
        ):
            if self.kinds.kind(given.value) in (Kind.OPTIMIZER, Kind.UNKNOWN):
                return given.value
        return self.kinds.among(call.args, Kind.OPTIMIZER)
