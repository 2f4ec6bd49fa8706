"""Feeding: evaluation loops without a loader, recognised by what they feed a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.scope.words import says_evaluation, says_training
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_MEMORY: Final = re.compile(r"(?:\w*_)?(?:hiddens?|hid|h|hx|cx|states?|mems?|memory)(?:_\w+)?")
"""Names of the hidden state that a recurrent network carries between batches."""


class Feeding(ValueAnalysis):
    """Separates loops that evaluate a network on data from those that feed back its output."""

    def __init__(self, values: KnownValues, runs: Callable[[cst.Call], bool]) -> None:
        super().__init__(values)
        self.runs = runs

    def measures(self, loop: cst.For) -> bool:
        """Return whether each pass evaluates a network on its own part of the data."""
        own = [
            call for call in self.functions.own(loop.body, cst.Call) if self._around(call) is loop
        ]
        measuring = own
        if not self._is_evaluation(loop):
            measuring = [call for call in own if self.gradients.grad(call) is Grad.OFF]
        return any(map(self.runs, measuring)) and any(
            self._is_fed(call, loop) for call in own if self.runs(call)
        )

    def _around(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the nearest loop around a node."""
        loops = (o for o in self.tree.ancestors(node) if type(o) in (cst.For, cst.While))
        return next(loops, None)

    # -- evaluation mode ------------------------------------------------

    def _is_evaluation(self, loop: cst.For) -> bool:
        """Return whether a loop runs in evaluation mode or is named for evaluation."""
        function = self.scopes.function(loop)
        if function is not None and says_evaluation(function.name.value):
            return not says_training(function.name.value)
        return self._in_eval_mode(self.scopes.home(loop), loop)

    def _in_eval_mode(self, home: cst.CSTNode, loop: cst.For) -> bool:
        """Return whether the last mode switch before or in a loop is `eval()`."""
        last = ""
        for call in self.functions.own(home, cst.Call):
            if self.tree.order(call) > self.tree.end(loop):
                break
            if type(call.func) is cst.Attribute and call.func.attr.value in ("train", "eval"):
                given = [arg.value for arg in call.args]
                off = any(type(each) is cst.Name and each.value == "False" for each in given)
                last = "eval" if off else call.func.attr.value
        return last == "eval"

    # -- inputs of a network ----------------------------------------------------

    def _is_fed(self, call: cst.Call, loop: cst.For) -> bool:
        """Return whether a call gets data of this pass only, nothing from the pass before."""
        counted = self.iteration.counts(loop.iter)
        found = False
        for arg in call.args:
            for name in self.tree.within(arg.value, cst.Name):
                if not self.scopes.reads(name):
                    continue
                carried = any(self._is_carried(b, name, loop) for b in self.scopes.reaching(name))
                if carried and not _MEMORY.fullmatch(name.value):
                    return False
                found = found or self._comes_from(name, arg.value, loop, counted, ASSIGNED)
        return found

    def _is_carried(self, binding: Binding, use: cst.Name, loop: cst.For) -> bool:
        """Return whether a value is left over from an earlier pass."""
        return binding.at >= self.tree.order(use) and self.tree.inside(binding.node, loop.body)

    def _comes_from(
        self, use: cst.Name, region: cst.CSTNode, loop: cst.For, counted: bool, depth: int
    ) -> bool:
        """Return whether a value comes from the loop's target, or is indexed by its counter."""
        if not depth:
            return False
        for binding in self.scopes.reaching(use):
            if binding.node is loop:
                if not counted or self._picks(use, region):
                    return True
            elif binding.value is not None and self.tree.inside(binding.node, loop.body):
                if binding.how in (How.ASSIGN, How.UNPACKED) and any(
                    self._comes_from(name, binding.value, loop, counted, depth - 1)
                    for name in self._read(binding.value)
                ):
                    return True
        return False

    def _read(self, value: cst.CSTNode) -> Iterator[cst.Name]:
        return (name for name in self.tree.within(value, cst.Name) if self.scopes.reads(name))

    def _picks(self, use: cst.Name, region: cst.CSTNode) -> bool:
        """Return whether a counter selects the value, as an index or as an argument."""
        if use is region:
            return False
        for child, outer in self.tree.outward(use):
            if isinstance(outer, cst.Subscript) and child is not outer.value:
                return True
            if isinstance(outer, cst.Call) and child is not outer.func:
                return not (self.functions.names.name(outer.func) or "").startswith("torch.")
            if outer is region:
                return False
        return False
