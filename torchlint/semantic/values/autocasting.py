"""Autocasting: which autocast is in force at a place, and in which type it computes."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.syntax.methods import entered
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.precision import Precision
from torchlint.semantic.values.values import State

_CUDA_ONLY: Final = "torch.cuda.amp.autocast"
_HALF: Final = frozenset({"torch.float16", "torch.half"})
_MAY_CAST: Final = re.compile(r"amp|cast|prec|ctx|context|fp\d|bf16|half|mixed", re.IGNORECASE)


class Casts(NamedTuple):
    """The `autocast` calls in force at a place; `complete` if there is certainly no other."""

    calls: tuple[cst.Call, ...]
    complete: bool


class Autocasting(ValueAnalysis):
    """Follows `with` statements, decorators and callers to the autocast around a place."""

    def __init__(self, values: KnownValues, precision: Precision) -> None:
        super().__init__(values)
        self.precision = precision

    @memoized(Casts((), complete=True))
    def around(self, node: cst.CSTNode) -> Casts:
        """Return the autocast calls around a node, in its function and around all its callers."""
        found: list[cst.Call] = []
        complete = True
        for outer in self.tree.ancestors(node):
            if isinstance(outer, cst.With):
                managers = [entered(item.item) for item in outer.items]
            elif isinstance(outer, cst.FunctionDef):
                managers = [mark.decorator for mark in outer.decorators]
            else:
                continue
            for manager in managers:
                call = self.precision.autocast(manager)
                if call is not None:
                    found.append(call)
                elif _MAY_CAST.search(self.tree.code(manager)):
                    complete = False
            if isinstance(outer, cst.FunctionDef):
                called = self._around_callers(outer)
                return Casts((*found, *called.calls), complete and called.complete)
        return Casts(tuple(found), complete)

    def _around_callers(self, function: cst.FunctionDef) -> Casts:
        around = [self.around(call) for call in self.functions.callers(function)]
        if len({bool(each.calls) for each in around}) > 1:
            return Casts((), complete=False)
        calls = (call for each in around for call in each.calls)
        return Casts(tuple(calls), all(each.complete for each in around))

    def may_be_on(self, node: cst.CSTNode) -> bool:
        """Return whether some autocast may be in force at a node."""
        casts = self.around(node)
        if casts.calls or not casts.complete:
            return True
        return bool(self.functions.mentions("autocast")) and any(
            isinstance(body, cst.FunctionDef) and not self.functions.callers(body)
            for body in self.functions.run_with(node)
        )

    def is_off(self, autocast: cst.Call) -> bool:
        """Return whether a call of `autocast` turns it off, or may do so in some run."""
        place = 0 if self.names.name(autocast.func) == _CUDA_ONLY else 2
        enabled = self.values.argument(autocast, "enabled", place)
        return enabled.state is not State.ABSENT and not enabled.equals(True)

    def is_half(self, autocast: cst.Call) -> bool:
        """Return whether a call of `autocast` computes in float16, on a GPU at least."""
        dtype = self.values.argument(autocast, "dtype", 1)
        if dtype.state is State.ABSENT:
            return self.names.name(autocast.func) == _CUDA_ONLY or self._names_cuda(autocast)
        given = self.values.argument_node(autocast, "dtype", 1)
        splats = [self.origins.of(arg.value, ("dtype",)) for arg in autocast.args if arg.star]
        origin = self.origins.of(given.value) if given is not None else splats[-1]
        types = {self.names.name(value) for value in origin.values}
        return origin.complete and bool(types) and types <= _HALF

    def _names_cuda(self, autocast: cst.Call) -> bool:
        """Return whether the device of an autocast is CUDA, in some run at least."""
        given = self.values.argument_node(autocast, "device_type", 0)
        if given is None or given.star:
            return False
        device = given.value
        if isinstance(device, cst.Attribute) and device.attr.value == "type":
            device = device.value
        return any(
            text.value[1:].startswith("cuda")
            for value in self.origins.of(device).values
            for text in self._texts(value)
        )

    def _texts(self, value: cst.BaseExpression) -> list[cst.SimpleString]:
        if isinstance(value, cst.SimpleString):
            return [value]
        return [*self.tree.within(value, cst.SimpleString)]
