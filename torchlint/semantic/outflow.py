"""Outflow: where the outputs of a network go that were made with gradients on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Final

import libcst as cst

from torchlint.semantic.functions import Functions
from torchlint.semantic.kind import Kind
from torchlint.semantic.kinds import Kinds
from torchlint.semantic.loops import Loops
from torchlint.semantic.scopes import Binding, How, dotted

__all__ = ["Fate", "Outflow"]


class Fate(Enum):
    """What becomes of a graph: nothing, out of sight, or it is sent backward."""

    DROPPED = auto()
    HIDDEN = auto()
    TRAINED = auto()


_CUT: Final = frozenset(
    (
        "item detach detach_ tolist numpy argmax argmin eq ne gt ge lt le size dim numel long "
        "int bool byte backward format topk_indices isnan isfinite isinf"
    ).split()
)
_CUT_NAMES: Final = frozenset({
    "builtins.float", "builtins.int", "builtins.len", "builtins.str", "builtins.print",
    "builtins.round", "builtins.bool", "torch.argmax", "torch.eq", "builtins.isinstance",
    "math.exp", "math.sqrt", "math.log",
})  # fmt: skip
_FILLS: Final = frozenset("append extend add update insert add_ copy_ put".split())
_GRAPHLESS: Final = frozenset({Kind.NUMBER, Kind.STRING, Kind.NDARRAY, Kind.DEVICE, Kind.MODULE})
_HOLDERS: Final = (
    cst.BaseExpression, cst.Arg, cst.BaseElement, cst.BaseSlice, cst.SubscriptElement,
    cst.BaseDictElement,
)  # fmt: skip
_OPAQUE: Final = frozenset({cst.Comparison, cst.FormattedString, cst.Lambda})
_DEPTH: Final = 3


class Outflow:
    """Follows graphs from the calls that make them to what is done with them."""

    def __init__(self, functions: Functions, kinds: Kinds, loops: Loops) -> None:
        self.functions = functions
        self.kinds = kinds
        self.loops = loops
        self.tree = functions.tree
        self.scopes = functions.scopes
        self.names = functions.names

    def fate(self, region: cst.CSTNode, forwards: Iterable[cst.Call] = ()) -> Fate:
        """Say what becomes of the graphs that the networks run in a region make."""
        sources = {
            id(call)
            for call in self.functions.own(region, cst.Call)
            if self.loops.module_call(call) is not None or self._runs(call)
        }
        return self._follow(region, sources | {id(call) for call in forwards}, _DEPTH)

    def is_cut_off(self, call: cst.Call) -> bool:
        """Whether the graph of a call ends in the very expression: `model(x).argmax(1) == y`."""
        child: cst.CSTNode = call
        for outer in self.tree.ancestors(call):
            if isinstance(outer, cst.BaseStatement):
                return False
            if isinstance(outer, cst.Comparison):
                return True
            if isinstance(outer, cst.Call) and child is not call and self._cuts(outer):
                return True
            child = outer
        return False

    def _runs(self, call: cst.Call) -> bool:
        callee = self.functions.callee(call)
        return callee is not None and self.loops.runs_module(callee)

    def _follow(self, region: cst.CSTNode, sources: set[int], depth: int) -> Fate:
        function = self.scopes.function(region)
        home = function if function is not None else self.tree.module
        carrying = self._carrying(home, sources)
        for call in self.functions.own(home, cst.Call):
            handed = [call.func, *(arg.value for arg in call.args)]
            if self._steps(call) and any(self._carries(h, sources, carrying) for h in handed):
                return Fate.TRAINED
        if self._kept_and_trained(home, carrying):
            return Fate.TRAINED
        if function is None:
            return Fate.DROPPED
        given_back = [
            value
            for value in self.functions.returns(function)
            if self._carries(value, sources, carrying)
        ]
        if not given_back:
            return Fate.DROPPED
        return self._beyond(function, depth)

    def _beyond(self, function: cst.FunctionDef, depth: int) -> Fate:
        """Follow what a function returns into its callers."""
        callers = self.functions.callers(function)
        if not callers or not depth or self.functions.escapes(function):
            return Fate.HIDDEN
        fates = {self._follow(call, {id(call)}, depth - 1) for call in callers}
        for fate in (Fate.TRAINED, Fate.HIDDEN):
            if fate in fates:
                return fate
        return Fate.DROPPED

    def _steps(self, call: cst.Call) -> bool:
        """Whether a call sends something backward, or hands it to a function that does."""
        if self.loops.is_step(call) or self.names.name(call.func) == "torch.autograd.grad":
            return True
        callee = self.functions.callee(call)
        return callee is not None and any(
            self.loops.is_step(inner)
            for body in self.functions.reached(callee)
            for inner in self.functions.own(body, cst.Call)
        )

    def _carrying(self, home: cst.CSTNode, sources: set[int]) -> set[int]:
        """Find the bindings of a function whose value has the graph of a source behind it."""
        found: set[int] = set()
        while True:
            more = {id(binding) for binding in self._bound(home, sources, found)} - found
            if not more:
                return found
            found |= more

    def _bound(self, home: cst.CSTNode, sources: set[int], found: set[int]) -> Iterator[Binding]:
        assigns: list[cst.Assign | cst.AnnAssign | cst.AugAssign] = [
            *self.functions.own(home, cst.Assign),
            *self.functions.own(home, cst.AnnAssign),
            *self.functions.own(home, cst.AugAssign),
        ]
        for assign in assigns:
            if assign.value is None or not self._carries(assign.value, sources, found):
                continue
            for target in _targets(assign):
                yield from self._of_target(target)
        for call in self.functions.own(home, cst.Call):
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value in _FILLS:
                if any(self._carries(arg.value, sources, found) for arg in call.args):
                    yield from self._read(func.value)

    def _of_target(self, target: cst.BaseExpression) -> Iterator[Binding]:
        if isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                yield from self._of_target(element.value)
        elif isinstance(target, cst.Subscript):
            yield from self._read(target.value)
        else:
            bound = self.scopes.stored(target)
            if bound is not None:
                yield bound

    def _read(self, node: cst.BaseExpression) -> tuple[Binding, ...]:
        if isinstance(node, cst.Name):
            return self.scopes.reaching(node)
        if isinstance(node, cst.Attribute):
            return self.functions.attribute(node)
        return self._read(node.value) if isinstance(node, cst.Subscript) else ()

    def _carries(self, node: cst.CSTNode, sources: set[int], carrying: set[int]) -> bool:
        """Whether a value has the graph of a source behind it."""
        if id(node) in sources:
            return True
        if type(node) in _OPAQUE:
            return False
        if type(node) is cst.Name:
            if not carrying or self.kinds.kind(node) in _GRAPHLESS:
                return False
            return any(id(binding) in carrying for binding in self.scopes.reaching(node))
        if type(node) is cst.Attribute:
            if node.attr.value in ("data", "shape", "device", "dtype"):
                return False
            bindings = self.functions.attribute(node)
            if any(id(binding) in carrying for binding in bindings):
                return True
            return self._carries(node.value, sources, carrying)
        if type(node) is cst.Arg:
            return self._carries(node.value, sources, carrying)
        if type(node) is cst.Call and self._cuts(node):
            return False
        return any(
            self._carries(child, sources, carrying)
            for child in self.tree.children(node)
            if isinstance(child, _HOLDERS)
        )

    def _cuts(self, call: cst.Call) -> bool:
        func = call.func
        if isinstance(func, cst.Attribute) and func.attr.value in _CUT:
            return True
        return self.names.name(func) in _CUT_NAMES or self.kinds.kind(call) in _GRAPHLESS

    def _kept_and_trained(self, home: cst.CSTNode, carrying: set[int]) -> bool:
        """Whether an attribute that keeps a graph is read by another function that trains."""
        kept = {
            dotted(node)
            for node in self.functions.own(home, cst.Attribute)
            if (bound := self.scopes.stored(node)) is not None
            and bound.how in (How.ASSIGN, How.AUGMENTED)
            and id(bound) in carrying
        }
        return bool(kept) and any(
            dotted(node) in kept
            and self.scopes.reads(node)
            and (function := self.scopes.function(node)) is not None
            and function is not home
            and any(self._steps(call) for call in self.functions.own(function, cst.Call))
            for node in self.tree.all(cst.Attribute)
        )


def _targets(
    assign: cst.Assign | cst.AnnAssign | cst.AugAssign,
) -> Iterator[cst.BaseExpression]:
    if isinstance(assign, cst.Assign):
        for target in assign.targets:
            yield target.target
    else:
        yield assign.target
