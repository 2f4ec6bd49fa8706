"""Updates: what code does with gradients, in order, through functions of this file."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.scope.words import says_training
from torchlint.semantic.syntax.methods import word_of
from torchlint.semantic.values.kind import Kind


class Act(Enum):
    """An operation on gradients."""

    BACKWARD = auto()
    CLIP = auto()
    STEP = auto()
    CLEAR = auto()


class Update(NamedTuple):
    """One act; `at` is the call in the given region that leads to it, `call` the act itself.

    `optimizer` is the object that is stepped or cleared, as written in `call`.
    """

    act: Act
    at: cst.Call
    call: cst.Call
    optimizer: cst.BaseExpression | None = None
    in_sight: bool = True
    """Whether the file shows the act; False for a training function of another file."""


_CLIPS: Final = frozenset({
    "torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_norm",
    "torch.nn.utils.clip_grad_value_", "torch.nn.utils.clip_grads_with_norm_",
})  # fmt: skip
_CLIP_METHODS: Final = frozenset("clip_grad_norm_ clip_grad_value_ clip_gradients".split())


class Updates(LoopAnalysis):
    """Finds backward passes, clipping, optimizer steps and gradient clearing."""

    @cached_method
    def within(self, region: cst.CSTNode) -> tuple[Update, ...]:
        """Return the acts of a region, in source order."""
        return tuple(self._of_region(region, CALLED, set()))

    def _of_region(self, region: cst.CSTNode, depth: int, seen: set[int]) -> Iterator[Update]:
        for call in self.functions.own(region, cst.Call):
            act = self.act(call)
            if act is not None:
                acted_on = self.loops.stepped(call) if act in (Act.STEP, Act.CLEAR) else None
                yield Update(act, call, call, acted_on)
                continue
            callee = self.functions.callee(call)
            if callee is None:
                if self._trains_out_of_sight(call):
                    yield Update(Act.STEP, call, call, self._handed(call), in_sight=False)
            elif depth and id(callee) not in seen:
                for inner in self._of_region(callee.body, depth - 1, {*seen, id(callee)}):
                    yield Update(inner.act, call, inner.call, inner.optimizer, inner.in_sight)

    def act(self, call: cst.Call) -> Act | None:
        """Return the act that a call directly performs."""
        func = call.func
        if self.names.name(func) in _CLIPS:
            return Act.CLIP
        if not isinstance(func, cst.Attribute):
            return None
        if self.loops.is_update(call):
            return Act.STEP
        if self.loops.goes_backward(call):
            return Act.BACKWARD
        method = func.attr.value
        if method == "zero_grad":
            return Act.CLEAR
        return Act.CLIP if method in _CLIP_METHODS and self.names.name(func) is None else None

    def _trains_out_of_sight(self, call: cst.Call) -> bool:
        """Return whether a function outside this file receives an optimizer to train with."""
        if not says_training(word_of(call)):
            return False
        return dotted(call.func) != "" and self._handed(call) is not None

    def _handed(self, call: cst.Call) -> cst.BaseExpression | None:
        return self.kinds.among(call.args, Kind.OPTIMIZER)

    def same_optimizer(
        self, first: cst.BaseExpression | None, second: cst.BaseExpression | None
    ) -> bool | None:
        """Return whether two expressions are the same optimizer; None if unknown."""
        if first is None or second is None:
            return None
        one, other = self.origins.of(first), self.origins.of(second)
        made = [each for each in one.values if isinstance(each, cst.Call)]
        also = [each for each in other.values if isinstance(each, cst.Call)]
        if any(mine is theirs for mine in made for theirs in also):
            return True
        if made and also and one.complete and other.complete:
            return False
        near = self.scopes.home(first) is self.scopes.home(second)
        path = dotted(first)
        if path and path == dotted(second) and (near or path.startswith("self.")):
            return True
        return None
