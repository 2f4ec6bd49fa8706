"""Stuck modes: networks that an evaluation leaves in evaluation mode for training."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loop, Loops, Role
from torchlint.semantic.loops.modes import Mode, Modes
from torchlint.semantic.scope.bindings import holds
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind


class StuckMode(NamedTuple):
    """A network that a loop trains while it is still in evaluation mode.

    `training` is the loop over training batches, `outer` the loop whose next pass trains in the
    wrong mode (the same loop if it also evaluates), `switch` the call of `eval()`, and `at` the
    call in `outer` that leads there.
    """

    network: cst.BaseExpression
    training: Loop
    outer: Loop
    switch: cst.Call
    at: cst.Call


class _Run(NamedTuple):
    """A call that runs a network, and the path to the network where the call stands."""

    call: cst.Call
    path: str


class _ModeChange(NamedTuple):
    """A mode change as one region sees it; `path` is empty for an unseen network."""

    at: cst.Call
    mode: Mode
    path: str
    switch: cst.Call


class StuckModes(LoopAnalysis):
    """Follows the mode of networks around the loops of a file."""

    def __init__(self, loops: Loops, modes: Modes) -> None:
        super().__init__(loops)
        self.modes = modes

    @cached_property
    def all(self) -> tuple[StuckMode, ...]:
        """Every network that a training loop runs in evaluation mode after an evaluation."""
        found: dict[tuple[int, int], StuckMode] = {}
        for loop in self.loops.all():
            if loop.role is not Role.TRAIN_BATCH:
                continue
            for run, network in self._trained(loop).values():
                for each in self._around(run.call, run.path, loop, network, CALLED):
                    place = each.at if self.is_shared(each) else each.switch
                    found.setdefault((id(each.switch), id(place)), each)
        return tuple(found.values())

    def is_shared(self, stuck: StuckMode) -> bool:
        """Return whether other calls than `at` lead to the switch as well."""
        function = self.scopes.function(stuck.switch)
        if stuck.at is stuck.switch or function is None:
            return False
        return len(self.functions.callers(function)) > 1

    def _trained(self, loop: Loop) -> dict[str, tuple[_Run, cst.BaseExpression | None]]:
        """Return the networks that a loop trains by their paths, with the first call of each.

        Each comes as the loop spells it, None if it does not.
        """
        found: dict[str, tuple[_Run, cst.BaseExpression | None]] = {}
        for call in self.functions.own(loop.node.body, cst.Call):
            if next(self.loops.around(call), None) is loop:
                for run, path, network in self._run_by(call, CALLED):
                    spelled = network if _plain(dotted(network)) == path else None
                    found.setdefault(path, (run, spelled))
        found.pop("", None)
        return found

    def _run_by(self, call: cst.Call, depth: int) -> Iterator[tuple[_Run, str, cst.BaseExpression]]:
        """Yield what a call may run with gradients, with the network where the call stands."""
        network = self.loops.module_call(call)
        if network is not None:
            if self.gradients.grad(call) is not Grad.OFF:
                path = _plain(dotted(network))
                yield _Run(call, path), path, network
            return
        runs = depth and self.gradients.grad(call) is not Grad.OFF
        callee = self.functions.callee(call) if runs else None
        for inner in self.functions.own(callee.body, cst.Call) if callee is not None else ():
            for run, path, network in self._run_by(inner, depth - 1):
                assert callee is not None
                given = self.functions.passed(call, callee, path)
                yield run, self._in_caller(path, call, callee), given or network

    # -- up from a training loop --------------------------------------------------------

    def _around(
        self,
        place: cst.Call,
        path: str,
        training: Loop,
        spelled: cst.BaseExpression | None,
        depth: int,
    ) -> Iterator[StuckMode]:
        """Yield the stuck modes at a place, following enclosing loops and callers."""
        for loop in self.loops.around(place):
            changes = self._mode_changes(loop.node.body, CALLED)
            if (
                self._last([each for each in changes if self._is_before(each, place)], path)
                is not None
            ):
                return
            behind = self._last(
                [each for each in changes if not self._is_before(each, place)], path
            )
            if behind is not None:
                network = spelled or self._switched(path, behind.switch)
                if behind.mode is Mode.EVAL and network is not None:
                    yield StuckMode(network, training, loop, behind.switch, behind.at)
                return
        function = self.scopes.function(place)
        home = self.scopes.region(place)
        changes = [
            each for each in self._mode_changes(home, CALLED) if self._is_before(each, place)
        ]
        if function is None or not depth or self._last(changes, path) is not None:
            return
        for call in self.functions.callers(function):
            outer = self._in_caller(path, call, function)
            if outer:
                yield from self._around(call, outer, training, spelled, depth - 1)

    def _switched(self, path: str, switch: cst.Call) -> cst.BaseExpression | None:
        """Return the network of a path as its `eval()` spells it."""
        changed = self.modes.switch(switch)
        network = changed.network if changed is not None else None
        return network if network is not None and _plain(dotted(network)) == path else None

    def _is_before(self, change: _ModeChange, place: cst.CSTNode) -> bool:
        return self.tree.order(change.at) < self.tree.order(place)

    def _last(self, changes: list[_ModeChange], path: str) -> _ModeChange | None:
        """Return the last change that may affect a network, as UNKNOWN unless it certainly does."""
        for change in reversed(changes):
            if change.path and holds(change.path, path):
                return change
            if change.mode is Mode.EVAL:
                continue
            if not self._differs(change.path, path, self.scopes.home(change.at)):
                return _ModeChange(change.at, Mode.UNKNOWN, "", change.switch)
        return None

    def _differs(self, one: str, other: str, home: cst.CSTNode, depth: int = CALLED) -> bool:
        """Return whether two paths at one place certainly lead to different networks."""
        if not one or not other or holds(one, other):
            return False
        if one.startswith("self.") != other.startswith("self."):
            return False
        if self._is_any(one, home) or self._is_any(other, home):
            return False
        if self._made_of(one, other) & self._made_of(other, one):
            return False
        if not isinstance(home, cst.FunctionDef) or not self._is_one_given(home, one, other):
            return True
        callers = self.functions.callers(home)
        return bool(callers and depth) and all(
            self._differs(
                self._in_caller(one, call, home),
                self._in_caller(other, call, home),
                self.scopes.home(call),
                depth - 1,
            )
            for call in callers
        )

    def _is_any(self, path: str, home: cst.CSTNode) -> bool:
        """Return whether a loop goes over networks under this name."""
        bindings = self.scopes.scope_at(home).bindings.get(path.partition(".")[0], ())
        return any(binding.how is How.LOOP for binding in bindings)

    def _is_one_given(self, function: cst.FunctionDef, one: str, other: str) -> bool:
        """Return whether a caller passes one network, and the other comes from around it."""
        bound = self.scopes.scope_at(function).bindings
        hows = [
            {binding.how for binding in bound.get(path.partition(".")[0], ())}
            for path in (one, other)
        ]
        return set() in hows and any(How.PARAMETER in each for each in hows)

    @cached_method
    def _made_of(self, path: str, other: str) -> set[str]:
        """Return a path, what is assigned to it or to that, and the networks that this reads."""
        found, edge = {path}, [path]
        while edge:
            at = edge.pop()
            for line in self.tree.all(cst.Assign):
                if dotted(line.targets[0].target) != at:
                    continue
                read = {dotted(line.value)}
                for kind in (cst.Name, cst.Attribute):
                    read |= {
                        dotted(each)
                        for each in self.tree.within(line.value, kind)
                        if dotted(each) == other or self.modes.kinds.kind(each) is Kind.MODULE
                    }
                edge += read - found - {""}
                found |= read
        return found - {""}

    # -- changes ---------------------------------------------------------------------------

    def _mode_changes(self, region: cst.CSTNode, depth: int) -> list[_ModeChange]:
        """Return the mode changes in a region, functions that it calls included."""
        found: list[_ModeChange] = []
        for call in self.functions.own(region, cst.Call):
            own = self.modes.switch(call)
            if own is not None:
                path = _plain(dotted(own.network)) if own.network is not None else ""
                found.append(_ModeChange(call, own.mode, path, call))
                continue
            callee = self.functions.callee(call)
            if callee is None or not depth:
                continue
            for inner in self._mode_changes(callee.body, depth - 1):
                path = self._in_caller(inner.path, call, callee) if inner.path else ""
                mode = self._told(inner, call, callee)
                found.append(_ModeChange(call, mode, path, inner.switch))
        return [
            each._replace(mode=Mode.UNKNOWN) if self._has_choice(each, found) else each
            for each in found
        ]

    def _told(self, change: _ModeChange, call: cst.Call, callee: cst.FunctionDef) -> Mode:
        """Return the mode of a change, which a flag of the call may say: `net.train(flag)`."""
        flag = change.switch.args[0].value if len(change.switch.args) == 1 else None
        if change.at is not change.switch or not isinstance(flag, cst.Name):
            return change.mode
        given = self.functions.passed(call, callee, flag.value) or flag
        told = self.values.value_of(given).literal
        return {True: Mode.TRAIN, False: Mode.EVAL}.get(told, change.mode)

    def _has_choice(self, change: _ModeChange, changes: list[_ModeChange]) -> bool:
        """Return whether the other branch of an `if` makes a different mode change."""
        return any(
            other.mode is not change.mode and self.tree.choice(change.at, other.at) is not None
            for other in changes
        )

    def _in_caller(self, path: str, call: cst.Call, function: cst.FunctionDef) -> str:
        """Return the caller's path to an object that a function knows by `path`, "" if unknown."""
        root, _, rest = path.partition(".")
        given: cst.BaseExpression | None
        parameters = [each.name.value for each in function.params.params]
        if root in parameters:
            first = parameters[0] == root and self.scopes.class_of(function) is not None
            if first and isinstance(call.func, cst.Attribute):
                given = call.func.value
                kept, _, below = rest.partition(".")
                handed = self.functions.handed(given, kept) if kept else None
                if handed is not None and self._is_known_at(handed, call):
                    given, rest = handed, below
            else:
                given = self.functions.passed(call, function, root)
            outer = _plain(dotted(given)) if given is not None else ""
            return f"{outer}.{rest}" if outer and rest else outer
        bound = self.scopes.scope_at(function).bindings
        return "" if root in bound else path

    def _is_known_at(self, node: cst.BaseExpression, call: cst.Call) -> bool:
        """Return whether the path of an expression means the same where a call stands."""
        if self.scopes.home(node) is self.scopes.home(call):
            return True
        if dotted(node).startswith("self."):
            return self.scopes.class_of(node) is self.scopes.class_of(call)
        function = self.scopes.function(call)
        bound = self.scopes.scope_at(function).bindings if function is not None else {}
        return self.scopes.function(node) is None and dotted(node).partition(".")[0] not in bound


def _plain(path: str) -> str:
    """Remove the `.module` of a DataParallel wrapper from a path."""
    return path.removesuffix(".module")
