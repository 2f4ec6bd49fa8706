"""Scaling: what a file does with its `GradScaler`s."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.loops.frequency import Frequencies
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.values import State

_MAKERS: Final = frozenset({"torch.amp.GradScaler", "torch.cuda.amp.GradScaler"})
_METHODS: Final = frozenset("scale unscale_ step update state_dict load_state_dict".split())
_HARMLESS: Final = frozenset({"builtins.print", "builtins.isinstance", "builtins.hasattr"})


class ScalerCall(NamedTuple):
    """A call of a scaler's method; `optimizer` is its argument."""

    node: cst.Call
    method: str
    scaler: cst.BaseExpression
    optimizer: cst.BaseExpression | None


class Scaling(ValueAnalysis):
    """Finds how a file scales gradients."""

    def __init__(self, values: KnownValues, frequencies: Frequencies) -> None:
        super().__init__(values)
        self.frequencies = frequencies

    @cached_property
    def makers(self) -> tuple[cst.Call, ...]:
        """The calls that create a scaler, except permanently disabled ones."""
        return tuple(
            call
            for call in self.tree.all(cst.Call)
            if self.names.name(call.func) in _MAKERS and not self._is_off(call)
        )

    @cached_property
    def is_off(self) -> bool:
        """Whether every scaler of the file is permanently disabled."""
        made = [c for c in self.tree.all(cst.Call) if self.names.name(c.func) in _MAKERS]
        return bool(made) and not self.makers

    @cached_property
    def starts_by_default(self) -> bool:
        """Whether every scaler starts with the default scale, 65536."""
        return not any(
            arg.keyword.value == "init_scale" if arg.keyword is not None else True
            for call in self.makers
            for arg in call.args[self.names.name(call.func) == "torch.amp.GradScaler" :]
        )

    def is_always_on(self, maker: cst.Call) -> bool:
        """Return whether no argument can disable a scaler."""
        enabled = self.values.argument(maker, "enabled")
        return enabled.state is State.ABSENT or enabled.equals(True)

    def is_on_with(self, maker: cst.Call, autocast: cst.Call) -> bool:
        """Return whether one function enables a scaler and autocast by the same value."""
        given = [self.values.argument_node(each, "enabled") for each in (maker, autocast)]
        written = {self.tree.code(each.value) for each in given if each is not None}
        homes = {self.scopes.home(each) for each in (maker, autocast)}
        return None not in given and len(written) == len(homes) == 1

    @cached_property
    def all(self) -> tuple[ScalerCall, ...]:
        """Every call of a scaler's method, in source order."""
        return tuple(self._calls())

    def _calls(self) -> Iterator[ScalerCall]:
        for call in self.tree.all(cst.Call):
            func = call.func
            if not isinstance(func, cst.Attribute) or func.attr.value not in _METHODS:
                continue
            if self.kinds.kind(func.value) is not Kind.SCALER or self._is_switched_off(call):
                continue
            if not self._is_disabled(func.value):
                handed = call.args[0].value if call.args else None
                yield ScalerCall(call, func.attr.value, func.value, handed)

    def _is_switched_off(self, call: cst.Call) -> bool:
        """Return whether a call stands behind a test that is False: `use_scaler = False`."""
        return any(
            self.tree.inside(call, guard.body) and self.values.value_of(guard.test).equals(False)
            for guard in self.guards(call)
        )

    def _is_disabled(self, scaler: cst.BaseExpression) -> bool:
        """Return whether a scaler is permanently disabled."""
        made = self.values.value_of(scaler).node
        return isinstance(made, cst.Call) and self._is_off(made)

    def _is_off(self, maker: cst.Call) -> bool:
        return self.values.argument(maker, "enabled").equals(False)

    def of(self, *methods: str) -> list[ScalerCall]:
        """Return the calls of some methods."""
        return [each for each in self.all if each.method in methods]

    @cached_property
    def backwards(self) -> tuple[tuple[cst.Call, ScalerCall], ...]:
        """The backward passes of scaled losses, each with the call that scales."""
        scales = {id(each.node): each for each in self.of("scale")}
        found: list[tuple[cst.Call, ScalerCall]] = []
        for call in self.tree.all(cst.Call) if scales else ():
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == "backward":
                scaled = self._scaled(func.value, scales)
                if scaled is not None:
                    found.append((call, scaled))
        return tuple(found)

    def _scaled(
        self, receiver: cst.BaseExpression, scales: dict[int, ScalerCall]
    ) -> ScalerCall | None:
        if isinstance(receiver, cst.Name):
            made = [binding.value for binding in self.scopes.reaching(receiver)]
            found = [scales.get(id(value)) for value in made]
            return found[0] if len(found) == 1 else None
        return scales.get(id(receiver))

    @cached_property
    def escapes(self) -> bool:
        """Whether a scaler is passed to code that this file does not show."""
        for arg in self.tree.all(cst.Arg):
            holder = self.tree.parent(arg)
            if not isinstance(arg.value, (cst.Name, cst.Attribute)):
                continue
            if isinstance(holder, cst.Call) and self.kinds.kind(arg.value) is Kind.SCALER:
                if self.names.name(holder.func) not in _HARMLESS:
                    if self.functions.callee(holder) is None:
                        return True
        return False

    # -- positions of calls ----------------------------------------------------

    def together(self, first: cst.CSTNode, second: cst.CSTNode) -> bool:
        """Return whether two places of a function can run in one pass, not in two branches."""
        if self.scopes.home(first) is not self.scopes.home(second):
            return False
        asked = dict(self._sides(first))
        return all(asked.get(test, side) is side for test, side in self._sides(second))

    def _sides(self, node: cst.CSTNode) -> Iterator[tuple[object, object]]:
        """Yield the tests and the `try`s around a node, each with the side that it is on."""
        for child, outer in self.tree.outward(node):
            if isinstance(outer, (cst.If, cst.IfExp)) and child is not outer.test:
                yield self.tree.code(outer.test), child is outer.body
            elif isinstance(outer, cst.Try):
                yield outer, child

    def guards(self, node: cst.CSTNode) -> list[cst.If]:
        """Return the `if`s around a node up to its loop or function, innermost first."""
        found: list[cst.If] = []
        for outer in self.tree.ancestors(node):
            if isinstance(outer, (cst.For, cst.While, cst.FunctionDef)):
                break
            if isinstance(outer, cst.If):
                found.append(outer)
        return found

    def boundary(self, node: cst.CSTNode) -> cst.If | None:
        """Return the `if` that limits a node to some passes of its loop."""
        return next((each for each in self.guards(node) if self._is_periodic(each)), None)

    def _is_periodic(self, guard: cst.If) -> bool:
        if any(
            isinstance(operation.operator, cst.Modulo)
            for operation in self.tree.within(guard.test, cst.BinaryOperation)
        ):
            return True
        return isinstance(guard.test, cst.Name) and self.frequencies.rare(guard.test)

    def same(self, first: cst.BaseExpression | None, second: cst.BaseExpression | None) -> bool:
        """Return whether two expressions have the same code."""
        if first is None or second is None:
            return False
        spelled = dotted(first)
        return bool(spelled) and spelled == dotted(second)
