"""Gradient work: what may change gradients between a backward pass and the optimizer step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.gradientaccumulation import GradientAccumulation, PassFunction
from torchlint.semantic.loops.loops import Loops
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import method_of, word_of
from torchlint.semantic.training.updates import Act, Updates
from torchlint.semantic.values.kind import Kind

_LEARNING: Final = (Kind.MODULE, Kind.OPTIMIZER)
_GIVING: Final = ("parameters", "named_parameters")
_NAMED: Final = frozenset("params parameters grads gradients".split())
_HARMLESS: Final = frozenset(
    "parameters named_parameters modules children buffers state_dict load_state_dict train "
    "eval to cuda cpu zero_grad step requires_grad_ no_sync unscale_ join".split()
)
"""Methods of networks and optimizers that keep gradients, or count as gradient acts."""
_SEEN: Final = ("builtins.", "torch.", "math.", "time.", "logging.")


class GradientWork(LoopAnalysis):
    """Tells whether code other than clipping may change accumulated gradients."""

    def __init__(self, loops: Loops, updates: Updates) -> None:
        super().__init__(loops)
        self.updates = updates

    def changes(self, accumulation: GradientAccumulation | PassFunction) -> bool:
        """Return whether code between the backward passes and the step may change the gradients."""
        return any(self._may_change(node, CALLED) for node in self._between(accumulation))

    def _between(
        self, accumulation: GradientAccumulation | PassFunction
    ) -> Iterator[cst.Call | cst.Attribute]:
        """Yield the calls and gradient accesses between the last backward and the step."""
        region = self._region(accumulation)
        acts = self.updates.within(region)
        last = max(self.tree.order(call) for call in accumulation.backwards)
        steps = [self.tree.order(each.at) for each in acts if each.act is Act.STEP]
        end = max(steps, default=self.tree.end(region))
        first = last if end > last else self.tree.order(accumulation.closing or region)
        found: list[cst.Call | cst.Attribute] = [
            *self.functions.own(region, cst.Call),
            *self.functions.own(region, cst.Attribute),
        ]
        yield from (node for node in found if first < self.tree.order(node) < end)

    def _region(self, accumulation: GradientAccumulation | PassFunction) -> cst.CSTNode:
        """Return the body of the loop, or the block around it if the step is behind the loop."""
        loop = accumulation.around
        around = self.tree.parent(loop)
        behind = accumulation.closing is None and accumulation.test is None and around is not None
        return around if behind and around is not None else loop.body

    def _may_change(self, node: cst.CSTNode, depth: int) -> bool:
        if isinstance(node, cst.Attribute):
            return node.attr.value == "grad" and self.names.name(node) is None
        return isinstance(node, cst.Call) and self._call_may_change(node, depth)

    def _call_may_change(self, call: cst.Call, depth: int) -> bool:
        func, word = call.func, word_of(call)
        if self.updates.act(call) is not None or "clip" in word:
            return False
        callee = self.functions.callee(call)
        if callee is not None:
            return depth > 0 and any(
                self._may_change(node, depth - 1)
                for kind in (cst.Attribute, cst.Call)
                for node in self.functions.own(callee.body, kind)
            )
        name = self.names.name(func) or ""
        if name.startswith(_SEEN):
            return "._foreach_" in name
        if self.loops.module_call(call) is not None or word in _HARMLESS:
            return False
        if isinstance(func, cst.Attribute) and not name:
            owner = func.value
            if self.kinds.kind(owner) in _LEARNING or dotted(owner) == "self":
                return True
        return any(self._learns(arg.value) for arg in call.args)

    def _learns(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is a network, an optimizer, or parameters of one."""
        if self.kinds.kind(node) in _LEARNING:
            return True
        if isinstance(node, (cst.Name, cst.Attribute)):
            if not _NAMED.isdisjoint(words(dotted(node).rpartition(".")[2])):
                return True
        if isinstance(node, cst.Name):
            values = (binding.value for binding in self.scopes.reaching(node))
            return any(value is not None and self._gives(value) for value in values)
        return self._gives(node)

    def _gives(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression gets the parameters of a network."""
        return any(method_of(call) in _GIVING for call in self.tree.within(node, cst.Call))
