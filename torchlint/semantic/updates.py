"""Updates: what code does with gradients, in order, through functions of the same file."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

import libcst as cst

from torchlint.record import Record
from torchlint.semantic.functions import Functions
from torchlint.semantic.kind import Kind
from torchlint.semantic.kinds import Kinds
from torchlint.semantic.loops import Loops
from torchlint.semantic.origins import Origins
from torchlint.semantic.scopes import dotted
from torchlint.semantic.words import says_training

__all__ = ["Act", "Update", "Updates"]


class Act(Enum):
    """What is done with gradients."""

    BACKWARD = auto()
    CLIP = auto()
    STEP = auto()
    CLEAR = auto()


class Update(Record):
    """One act; `at` is the call in the asked region that leads to it, `call` the act itself.

    `optimizer` is what is stepped or cleared, as it is written there.
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
_DEPTH: Final = 3


class Updates:
    """Finds backward passes, clippings, optimizer steps and clearings of gradients."""

    def __init__(self, functions: Functions, kinds: Kinds, loops: Loops, origins: Origins) -> None:
        self.functions = functions
        self.kinds = kinds
        self.loops = loops
        self.origins = origins
        self.names = functions.names
        self.scopes = functions.scopes
        self._known: dict[int, tuple[Update, ...]] = {}

    def within(self, region: cst.CSTNode) -> tuple[Update, ...]:
        """Give the acts of a region, in the order of the source."""
        found = self._known.get(id(region))
        if found is None:
            found = self._known[id(region)] = tuple(self._of_region(region, _DEPTH, set()))
        return found

    def _of_region(self, region: cst.CSTNode, depth: int, seen: set[int]) -> Iterator[Update]:
        for call in self.functions.own(region, cst.Call):
            act = self.act(call)
            if act is not None:
                yield Update(act, call, call, self._optimizer(call, act))
                continue
            callee = self.functions.callee(call)
            if callee is None:
                if self._trains_out_of_sight(call):
                    yield Update(Act.STEP, call, call, self._handed(call), in_sight=False)
            elif depth and id(callee) not in seen:
                for inner in self._of_region(callee.body, depth - 1, {*seen, id(callee)}):
                    yield Update(inner.act, call, inner.call, inner.optimizer, inner.in_sight)

    def act(self, call: cst.Call) -> Act | None:
        """Give what a call itself does with gradients."""
        func = call.func
        if self.names.name(func) in _CLIPS:
            return Act.CLIP
        if not isinstance(func, cst.Attribute):
            return None
        method = func.attr.value
        if method in ("backward", "manual_backward", "step"):
            if not self.loops.is_step(call):
                return None
            return Act.STEP if method == "step" else Act.BACKWARD
        if method == "zero_grad":
            return Act.CLEAR
        return Act.CLIP if method in _CLIP_METHODS and self.names.name(func) is None else None

    def _optimizer(self, call: cst.Call, act: Act) -> cst.BaseExpression | None:
        if act not in (Act.STEP, Act.CLEAR) or not isinstance(call.func, cst.Attribute):
            return None
        if self.kinds.kind(call.func.value) is Kind.SCALER:
            return call.args[0].value if call.args else None
        return call.func.value

    def _trains_out_of_sight(self, call: cst.Call) -> bool:
        """Whether a function of another file is handed an optimizer to train with."""
        func = call.func
        last = func.attr if isinstance(func, cst.Attribute) else func
        if not isinstance(last, cst.Name) or not says_training(last.value):
            return False
        return dotted(func) != "" and self._handed(call) is not None

    def _handed(self, call: cst.Call) -> cst.BaseExpression | None:
        for arg in call.args:
            if not arg.star and self.kinds.kind(arg.value) is Kind.OPTIMIZER:
                return arg.value
        return None

    def same_optimizer(
        self, first: cst.BaseExpression | None, second: cst.BaseExpression | None
    ) -> bool | None:
        """Whether two expressions are one optimizer; None where the file does not show it."""
        if first is None or second is None:
            return None
        one, other = self.origins.of(first), self.origins.of(second)
        made = [each for each in one.values if isinstance(each, cst.Call)]
        also = [each for each in other.values if isinstance(each, cst.Call)]
        if any(mine is theirs for mine in made for theirs in also):
            return True
        if made and also and one.complete and other.complete:
            return False
        near = self.scopes.function(first) is self.scopes.function(second)
        path = dotted(first)
        if path and path == dotted(second) and (near or path.startswith("self.")):
            return True
        return None
