"""Step functions: functions that make one training step for a loop that is not in view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.calls.hooks import Rate
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops, Role
from torchlint.semantic.loops.ownership import Ownership
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.values.kind import Kind

_ONCE: Final = frozenset(
    "test tests demo check example main setup init initialize profile benchmark bench warmup "
    "trace debug smoke pretrain overfit fit".split()
)
"""Words in names of functions that a program calls once, if at all."""


class StepFunctions(LoopAnalysis):
    """Finds the functions that go backward and step by themselves, without a loop around."""

    def __init__(self, loops: Loops, ownership: Ownership) -> None:
        super().__init__(loops)
        self.ownership = ownership

    @memoized(False)
    def is_pass(self, function: cst.FunctionDef) -> bool:
        """Return whether a call of a function is one pass of a training, for whatever runs it."""
        if self.ownership.rate(function) is Rate.STEP or self.makes(function):
            return True
        calls = self.functions.callers(function)
        return bool(calls) and all(map(self._is_made_in_pass, calls))

    def _is_made_in_pass(self, call: cst.Call) -> bool:
        """Return whether a loop over training batches, or a function for it, makes a call once."""
        loop, function = next(self.loops.around(call), None), self.scopes.function(call)
        if loop is None:
            return function is not None and self.is_pass(function)
        return loop.role is Role.TRAIN_BATCH

    @memoized(False)
    def makes(self, function: cst.FunctionDef) -> bool:
        """Return whether nothing in view calls a function, which makes one training step."""
        if not _ONCE.isdisjoint(words(function.name.value)) or self._is_called(function):
            return False
        if self.ownership.rate(function) is not None or self._is_handed_on(function):
            return False
        acts = list(self._acts(function.body, {function}))
        return (
            len({method_of(call) == "step" for call in acts}) > 1
            and not any(method_of(call) == "step" and self._is_of(call, function) for call in acts)
            and not self._repeats(function)
        )

    def _acts(self, body: cst.CSTNode, seen: set[cst.CSTNode]) -> Iterator[cst.Call]:
        """Yield the backward passes and steps that a body runs, outside of all loops."""
        for call in self.functions.own(body, cst.Call):
            if any(True for _ in self.loops.around(call)):
                continue
            if self.loops.is_step(call):
                yield call
            for callee in self.functions.reached(call, 1)[1:]:
                if callee not in seen:
                    seen.add(callee)
                    yield from self._acts(callee, seen)

    def losses(self, function: cst.FunctionDef) -> list[cst.BaseExpression]:
        """Return the losses that a function hands back, for whatever goes backward."""
        found = self.functions.returns(function)
        tuples = [each for each in found if isinstance(each, cst.Tuple)]
        parts = [part.value for each in tuples for part in each.elements]
        return [each for each in (*found, *parts) if self.kinds.kind(each) is Kind.LOSS]

    def _is_called(self, function: cst.FunctionDef) -> bool:
        """Return whether a call in view surely runs a function, not only an override of it."""
        calls = self.functions.callers(function)
        return any(function in self.functions.callees(call) for call in calls)

    def _is_handed_on(self, function: cst.FunctionDef) -> bool:
        """Return whether a function inside another one is an argument, for whatever runs it."""
        inner = self.scopes.function(function) is not None
        return inner and self.functions.escapes(function)

    def _is_of(self, call: cst.Call, function: cst.FunctionDef) -> bool:
        """Return whether a call steps an optimizer that a function makes itself."""
        stepped = call.func.value if isinstance(call.func, cst.Attribute) else None
        return isinstance(stepped, cst.Name) and any(
            isinstance(binding.value, cst.Call) and self.tree.inside(binding.node, function.body)
            for binding in self.scopes.reaching(stepped)
        )

    def _repeats(self, function: cst.FunctionDef) -> bool:
        """Return whether a loop of the function handles batches or epochs itself."""
        return any(
            loop.loader is not None or loop.role is not Role.OTHER
            for loop in self.loops.own(function)
        )
