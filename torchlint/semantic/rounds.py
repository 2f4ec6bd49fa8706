"""Rounds: where evaluation mode outlasts an evaluation and comes round to the training loop."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.record import Record
from torchlint.semantic.functions import Functions
from torchlint.semantic.gradient import Grad, Gradients
from torchlint.semantic.loops import Loop, Loops, Role
from torchlint.semantic.modes import Mode, Modes
from torchlint.semantic.scopes import dotted

__all__ = ["Rounds", "Stuck"]


class Stuck(Record):
    """A network that a loop trains while it is still in evaluation mode.

    `trains` is the loop over training batches, `rounds` the loop that brings the mode back to it
    (the same one where an evaluation stands among the batches), `switch` the call of `eval()`, and
    `at` the call in `rounds` that leads there.
    """

    network: cst.BaseExpression
    trains: Loop
    rounds: Loop
    switch: cst.Call
    at: cst.Call


class _Turn(Record):
    """A change of mode as one region sees it; `path` is empty for a network out of sight."""

    at: cst.Call
    mode: Mode
    path: str
    switch: cst.Call


_DEPTH: Final = 3


class Rounds:
    """Follows the mode of networks around the loops of a file."""

    def __init__(
        self, functions: Functions, loops: Loops, gradients: Gradients, modes: Modes
    ) -> None:
        self.functions = functions
        self.loops = loops
        self.gradients = gradients
        self.modes = modes
        self.tree = functions.tree
        self.scopes = functions.scopes

    @cached_property
    def stuck(self) -> tuple[Stuck, ...]:
        """Every network of a training loop that an evaluation leaves in evaluation mode."""
        found: dict[int, Stuck] = {}
        for loop in self.loops.all():
            if loop.role is not Role.TRAIN_BATCH:
                continue
            for path, call in self._trained(loop).items():
                for each in self._around(call, path, loop, call, _DEPTH):
                    found.setdefault(id(each.switch), each)
        return tuple(found.values())

    def _trained(self, loop: Loop) -> dict[str, cst.Call]:
        """Give the networks that a loop trains, each with the first call that runs it."""
        found: dict[str, cst.Call] = {}
        for call in self.functions.own(loop.node.body, cst.Call):
            network = self.loops.module_call(call)
            if network is None or self.gradients.grad(call) is not Grad.ON:
                continue
            if next(self.loops.around(call), None) is loop:
                found.setdefault(_plain(dotted(network)), call)
        found.pop("", None)
        return found

    # -- up from a training loop --------------------------------------------------------

    def _around(
        self, place: cst.Call, path: str, trains: Loop, first: cst.Call, depth: int
    ) -> Iterator[Stuck]:
        """Yield how a mode comes back to a place, through the loops around it and its callers."""
        for loop in self.loops.around(place):
            turns = self._turns(loop.node.body, _DEPTH)
            if self._last([t for t in turns if self._is_before(t, place)], path) is not None:
                return
            behind = self._last([t for t in turns if not self._is_before(t, place)], path)
            if behind is not None:
                network = self.loops.module_call(first)
                if behind.mode is Mode.EVAL and network is not None:
                    yield Stuck(network, trains, loop, behind.switch, behind.at)
                return
        function = self.scopes.function(place)
        home = function.body if function is not None else self.tree.module
        turns = [t for t in self._turns(home, _DEPTH) if self._is_before(t, place)]
        if function is None or not depth or self._last(turns, path) is not None:
            return
        for call in self.functions.callers(function):
            outer = self._in_caller(path, call, function)
            if outer:
                yield from self._around(call, outer, trains, first, depth - 1)

    def _is_before(self, turn: _Turn, place: cst.CSTNode) -> bool:
        return self.tree.order(turn.at) < self.tree.order(place)

    def _last(self, turns: list[_Turn], path: str) -> _Turn | None:
        """Give the last turn that is of a network, or may be; its mode is then UNKNOWN."""
        for turn in reversed(turns):
            if turn.path and _holds(turn.path, path):
                return turn
            if turn.mode is not Mode.EVAL and not self._differs(turn.path, path):
                return _Turn(turn.at, Mode.UNKNOWN, "", turn.switch)
        return None

    def _differs(self, one: str, other: str) -> bool:
        """Whether two paths surely lead to different networks."""
        if not one or one.startswith("self.") != other.startswith("self."):
            return False
        return not any(
            path == dotted(line.targets[0].target)
            and any(dotted(each) == against for each in self._read(line.value))
            for line in self.tree.all(cst.Assign)
            for path, against in ((one, other), (other, one))
        )

    def _read(self, value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        yield from self.tree.within(value, cst.Name)
        yield from self.tree.within(value, cst.Attribute)

    # -- turns ---------------------------------------------------------------------------

    def _turns(self, region: cst.CSTNode, depth: int) -> list[_Turn]:
        """Give the changes of mode in a region, those of functions that it runs included."""
        found: list[_Turn] = []
        for call in self.functions.own(region, cst.Call):
            own = self.modes.switch(call)
            if own is not None:
                path = _plain(dotted(own.network)) if own.network is not None else ""
                found.append(_Turn(call, own.mode, path, call))
                continue
            callee = self.functions.callee(call)
            if callee is None or not depth:
                continue
            for inner in self._turns(callee.body, depth - 1):
                path = self._in_caller(inner.path, call, callee) if inner.path else ""
                found.append(_Turn(call, inner.mode, path, inner.switch))
        return [self._open(turn) if self._has_choice(turn, found) else turn for turn in found]

    def _open(self, turn: _Turn) -> _Turn:
        return _Turn(turn.at, Mode.UNKNOWN, turn.path, turn.switch)

    def _has_choice(self, turn: _Turn, turns: list[_Turn]) -> bool:
        """Whether another turn, to another mode, stands in the other branch of an `if`."""
        branches = dict(self._branches(turn.at))
        return any(
            other.mode is not turn.mode
            and any(branches.get(test, taken) != taken for test, taken in self._branches(other.at))
            for other in turns
        )

    def _branches(self, node: cst.CSTNode) -> Iterator[tuple[int, bool]]:
        child = node
        for outer in self.tree.ancestors(node):
            if isinstance(outer, cst.FunctionDef):
                return
            if isinstance(outer, cst.If) and child is not outer.test:
                yield id(outer), child is outer.body
            child = outer

    def _in_caller(self, path: str, call: cst.Call, function: cst.FunctionDef) -> str:
        """Give what a caller calls a thing that a function calls by a path, empty if unknown."""
        root, _, rest = path.partition(".")
        given: cst.BaseExpression | None
        parameters = [each.name.value for each in function.params.params]
        if root in parameters:
            first = parameters[0] == root and self.scopes.class_of(function) is not None
            if first and isinstance(call.func, cst.Attribute):
                given = call.func.value
            else:
                given = self.functions.passed(call, function, root)
            outer = _plain(dotted(given)) if given is not None else ""
            return f"{outer}.{rest}" if outer and rest else outer
        bound = self.scopes.scope_at(function).bindings
        return "" if root in bound else path


def _plain(path: str) -> str:
    """Leave the wrapper of several GPUs out of a path."""
    return path.removesuffix(".module")


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(f"{outer}.")
