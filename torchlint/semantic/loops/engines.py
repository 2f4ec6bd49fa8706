"""Engines: the functions that an engine of Ignite runs for each batch, and its handlers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.hooks import Rate
from torchlint.semantic.syntax.methods import word_of
from torchlint.semantic.values.known import ValueAnalysis

_ENGINE: Final = re.compile(
    r"ignite\.engine\.(?:(?:engine|deterministic)\.)?(?:Deterministic)?Engine"
)
_EVENT: Final = re.compile(r"ignite\.engine\.(?:events\.)?Events\.(\w+)")
_EVENTS: Final = {
    "ITERATION_STARTED": Rate.STEP,
    "ITERATION_COMPLETED": Rate.STEP,
    "GET_BATCH_STARTED": Rate.STEP,
    "GET_BATCH_COMPLETED": Rate.STEP,
    "EPOCH_STARTED": Rate.EPOCH,
    "EPOCH_COMPLETED": Rate.EPOCH,
    "STARTED": Rate.ONCE,
    "COMPLETED": Rate.ONCE,
}
"""How often an engine fires each event."""
_EVALUATING: Final = ("no_grad", "inference_mode", "eval")


class Engines(ValueAnalysis):
    """Tells how often an engine runs a function: as its process, or as a handler of an event."""

    @cached_property
    def _are_used(self) -> bool:
        """Whether the code in view imports anything of Ignite."""
        return any(name.partition(".")[0] == "ignite" for name in self.functions.imported)

    def rate(self, function: cst.FunctionDef) -> Rate | None:
        """Return how often an engine runs a function, None if none is known to run it."""
        if not self._are_used:
            return None
        if self.is_process(function):
            return Rate.EVALUATION_STEP if self._evaluates(function) else Rate.STEP
        found = [self.event_rate(event) for event in self._events_of(function)]
        return _more_often(found)

    def is_process(self, function: cst.FunctionDef) -> bool:
        """Return whether an engine runs a function for each batch."""
        return function in self._processes

    def runs(self, batch: cst.Param) -> Iterator[cst.Call]:
        """Yield the calls that give an engine what a parameter of its process takes in turn."""
        engines = self._batches.get(batch)
        for run in self.functions.attributes("run") if engines else ():
            call = self.tree.parent(run)
            if isinstance(call, cst.Call) and call.func is run:
                made = self.origins.of(run.value).values
                if any(each is engine for each in made for engine in engines or ()):
                    yield call

    @cached_property
    def _engines(self) -> dict[cst.Call, cst.BaseExpression]:
        """The calls that make engines, with the process that each gets."""
        calls = self.tree.all(cst.Call) if self._are_used else ()
        return {
            call: call.args[0].value
            for call in calls
            if call.args and _ENGINE.fullmatch(self.names.name(call.func) or "")
        }

    @cached_property
    def _processes(self) -> frozenset[cst.FunctionDef]:
        """The functions that engines run for each batch, through a lambda as well."""
        return frozenset(
            function
            for process in self._engines.values()
            for function in (
                self.functions.callees(process.body)
                if isinstance(process, cst.Lambda) and isinstance(process.body, cst.Call)
                else self.functions.runnable(process)
            )
        )

    @cached_property
    def _batches(self) -> dict[cst.Param, list[cst.Call]]:
        """The parameters that take the batches, each after that for the engine."""
        found: dict[cst.Param, list[cst.Call]] = {}
        for call, process in self._engines.items():
            for value in self.origins.of(process).values:
                for parameters, bound in self._signatures(value):
                    for batch in parameters[bound + 1 : bound + 2]:
                        found.setdefault(batch, []).append(call)
        return found

    def _signatures(self, process: cst.BaseExpression) -> Iterator[tuple[Sequence[cst.Param], int]]:
        """Yield the parameters of a process, and how many are bound before an engine runs it."""
        if isinstance(process, cst.Lambda):
            yield process.params.params, 0
            return
        given = (
            [arg for arg in process.args if not arg.keyword][1:]
            if isinstance(process, cst.Call)
            else []
        )
        for function in self.functions.runnable(process):
            first = function.params.params[:1]
            owned = bool(first) and self.functions.owner_of_self(first[0]) is not None
            yield function.params.params, owned + len(given)

    def event_rate(self, event: cst.BaseExpression) -> Rate | None:
        """Return how often an event fires, None for an event that is not known."""
        if isinstance(event, cst.BinaryOperation) and isinstance(event.operator, cst.BitOr):
            first, second = self.event_rate(event.left), self.event_rate(event.right)
            return _more_often((first, second))
        spelled = event.func if isinstance(event, cst.Call) else event
        found = _EVENT.fullmatch(self.names.name(spelled) or "")
        if found is None:
            return None
        rate = _EVENTS.get(found.group(1))
        if isinstance(event, cst.Call) and rate is Rate.STEP:
            every = self.values.argument(event, "every")
            return rate if every.equals(1) else Rate.EPOCH
        return rate

    def _events_of(self, function: cst.FunctionDef) -> Iterator[cst.BaseExpression]:
        """Yield the events of which a function is a handler."""
        for mark in (each.decorator for each in function.decorators):
            if isinstance(mark, cst.Call) and word_of(mark) == "on" and mark.args:
                yield mark.args[0].value
        for call, arg in self._registered(function):
            if word_of(call) == "add_event_handler":
                event = self.values.argument_node(call, "event_name", 0)
                if event is not None and event is not arg:
                    yield event.value

    def _registered(self, function: cst.FunctionDef) -> Iterator[tuple[cst.Call, cst.Arg]]:
        """Yield the calls that get a function as an argument."""
        for mention in self.functions.mentions(function.name.value):
            arg, call = self.tree.parent(mention), self.tree.taker(mention)
            if (
                isinstance(arg, cst.Arg)
                and call is not None
                and isinstance(mention, (cst.Name, cst.Attribute))
                and self.functions.definition(mention) is function
            ):
                yield call, arg

    def _evaluates(self, function: cst.FunctionDef) -> bool:
        """Return whether the process of an engine evaluates instead of training."""
        marks = [each.decorator for each in function.decorators]
        calls = [*self.tree.within(function.body, cst.Call)]
        calls += [mark for mark in marks if isinstance(mark, cst.Call)]
        words = {word_of(call) for call in calls}
        return "backward" not in words and not words.isdisjoint(_EVALUATING)


def _more_often(rates: Sequence[Rate | None]) -> Rate | None:
    """Return the highest of several rates, None if one is unknown or there is none."""
    known = [each for each in rates if each is not None]
    return max(known, key=lambda each: each.value) if known and len(known) == len(rates) else None
