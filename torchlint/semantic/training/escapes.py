"""Escapes: escape analysis of the autograd graphs that network calls record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.values.kind import Kind


class GraphUse(Enum):
    """What a graph is used for: nothing, code outside this file, or a backward pass."""

    DROPPED = auto()
    ESCAPED = auto()
    TRAINED = auto()


_CUT: Final = frozenset(
    "item detach detach_ tolist numpy argmax argmin eq ne gt ge lt le size dim numel long "
    "int bool byte backward format topk_indices isnan isfinite isinf multinomial".split()
)
_CUT_NAMES: Final = frozenset({
    "builtins.float", "builtins.int", "builtins.len", "builtins.str", "builtins.print",
    "builtins.round", "builtins.bool", "builtins.isinstance", "torch.argmax", "torch.multinomial",
    "torch.eq", "torch.tensor", "torch.Tensor", "torch.FloatTensor", "torch.LongTensor",
    "torch.zeros_like", "torch.ones_like", "torch.full_like", "torch.empty_like",
    "torch.rand_like", "torch.randn_like", "numpy.array", "math.exp", "math.sqrt", "math.log",
})  # fmt: skip
_CALL: Final = "__call__"
_FILLS: Final = frozenset("append extend add update insert add_ copy_ put".split())
_GRAPHLESS: Final = frozenset({Kind.NUMBER, Kind.STRING, Kind.NDARRAY, Kind.DEVICE, Kind.MODULE})
_HOLDERS: Final = (
    cst.BaseExpression, cst.Arg, cst.BaseElement, cst.BaseSlice, cst.SubscriptElement,
    cst.BaseDictElement,
)  # fmt: skip
_BINDING: Final = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr)
_GRAPHLESS_PARTS: Final = ("data", "shape", "device", "dtype")
_OPAQUE: Final = frozenset({cst.Comparison, cst.FormattedString, cst.Lambda})


class _Flow:
    """How far graphs flow in one function, or in the module if it is None."""

    def __init__(self, function: cst.FunctionDef | None) -> None:
        self.function = function
        self.bindings: dict[int, Binding] = {}
        self.kept: tuple[Binding, ...] = ()
        """The bindings among them that outlive a call of the function."""
        self.passed: set[int] = set()
        self.returned = False
        self.trained = False
        self.handed_on = False
        """Whether a line hands a graph to a call that may keep it."""


class Escapes(LoopAnalysis):
    """Follows graphs from the calls that record them to their uses."""

    def __init__(self, loops: Loops) -> None:
        super().__init__(loops)
        self._attribute_words: set[str] = set()
        self._standing_for: dict[int, list[cst.Attribute]] = {}

    def use(self, region: cst.CSTNode, forwards: Iterable[cst.Call] = ()) -> GraphUse:
        """Return what the graphs are used for that networks in a region record."""
        return self._follow(region, [*self._sources(region), *forwards], CALLED)

    def use_within(self, region: cst.CSTNode, forwards: Iterable[cst.Call] = ()) -> GraphUse:
        """Return the same, with what the function returns or keeps in an object as escaped."""
        return self._follow(region, [*self._sources(region), *forwards], 0)

    def _sources(self, region: cst.CSTNode) -> list[cst.Call]:
        return [
            call
            for call in self.functions.own(region, cst.Call)
            if self.loops.module_call(call) is not None or self._runs(call)
        ]

    def use_of(self, value: cst.BaseExpression) -> GraphUse:
        """Return what the graph of a value is used for from there on."""
        return self._follow(value, [value], CALLED)

    def is_dropped(self, value: cst.BaseExpression, depth: int = CALLED) -> bool:
        """Return whether nothing in view keeps, hands on or trains the graph of a value."""
        function = self.scopes.function(value)
        flow = self._flow(function, [value])
        if flow.kept or flow.trained or flow.handed_on:
            return False
        if function is None or not flow.returned:
            return True
        callers = self.functions.callers(function)
        seen = callers and depth and not self.functions.escapes(function)
        return bool(seen) and all(self.is_dropped(call, depth - 1) for call in callers)

    def is_cut_off(self, call: cst.Call) -> bool:
        """Return whether the graph of a call ends in its expression (`net(x).argmax(1) == y`)."""
        for child, outer in self.tree.outward(call):
            if isinstance(outer, cst.BaseStatement):
                return False
            if isinstance(outer, cst.Comparison):
                return True
            if isinstance(outer, cst.Call) and child is not call and self._cuts(outer):
                return True
        return False

    def _runs(self, call: cst.Call) -> bool:
        callee = self.functions.callee(call)
        return callee is not None and self.loops.runs_module(callee)

    def _follow(self, region: cst.CSTNode, sources: Iterable[cst.CSTNode], depth: int) -> GraphUse:
        function = self.scopes.function(region)
        flow = self._flow(function, sources)
        if flow.trained or self._kept_and_trained(function, flow.bindings.values()):
            return GraphUse.TRAINED
        kept = not depth and (flow.handed_on or flow.kept)
        if function is None or not (flow.returned or kept):
            return GraphUse.DROPPED
        return self._beyond(function, depth)

    def _beyond(self, function: cst.FunctionDef, depth: int) -> GraphUse:
        """Follow the return value of a function into its callers.

        An object that can be called, such as a loss, is made for code that calls it unseen.
        """
        if function.name.value == _CALL or self.functions.is_generator(function):
            return GraphUse.ESCAPED
        callers = self.functions.callers(function)
        if not callers or not depth or self.functions.escapes(function):
            return GraphUse.ESCAPED
        uses = {self._follow(call, [call], depth - 1) for call in callers}
        for use in (GraphUse.TRAINED, GraphUse.ESCAPED):
            if use in uses:
                return use
        return GraphUse.DROPPED

    def _steps(self, call: cst.Call) -> bool:
        """Return whether a call runs backward on a value, or passes it to a function that does."""
        if self.loops.is_step(call) or self.names.name(call.func) == "torch.autograd.grad":
            return True
        callee = self.functions.callee(call)
        return callee is not None and self._trains(callee)

    @cached_method
    def _trains(self, function: cst.FunctionDef) -> bool:
        """Return whether a function, or one that it calls, runs a backward pass."""
        return any(self.loops.is_step(inner) for inner in self.functions.run_in(function))

    # -- within one function --------------------------------------------------

    def _flow(self, function: cst.FunctionDef | None, sources: Iterable[cst.CSTNode]) -> _Flow:
        """Follow graphs through the expressions and names of a function until one is trained."""
        flow = _Flow(function)
        edge: list[cst.CSTNode] = list(sources)
        while edge and not flow.trained:
            for binding in self._outward(edge.pop(), flow):
                if id(binding) not in flow.bindings:
                    flow.bindings[id(binding)] = binding
                    if "." in binding.name or self.scopes.function(binding.node) is not function:
                        flow.kept += (binding,)
                    edge += self._carriers(binding)
        return flow

    def _outward(self, node: cst.CSTNode, flow: _Flow) -> Iterator[Binding]:
        """Follow a value with a graph outwards, yielding the bindings that receive it."""
        at = node
        while id(at) not in flow.passed:
            flow.passed.add(id(at))
            holder = self.tree.parent(at)
            call = self.tree.parent(holder) if isinstance(holder, cst.Arg) else holder
            if holder is None or (isinstance(holder, cst.Arg) and holder.value is not at):
                return
            if self.scopes.function(holder) is flow.function:
                if isinstance(call, cst.Call):
                    flow.trained = flow.trained or self._steps(call)
                    filled = self._filled(call, holder)
                    if filled is None and isinstance(self.tree.parent(call), cst.Expr):
                        flow.handed_on = flow.handed_on or not self._cuts(call)
                    yield from filled or ()
                else:
                    yield from self._kept(holder, at, flow)
            if not isinstance(holder, _HOLDERS) or self._ends(holder, at):
                return
            at = holder

    def _filled(self, call: cst.Call, given: cst.CSTNode) -> tuple[Binding, ...] | None:
        """Return the bindings of what a call keeps an argument in, None if it is out of view."""
        if not isinstance(given, cst.Arg):
            return ()
        func, callees = call.func, self.functions.callees(call)
        taken = [self.functions.taken(call, callee, given.value) for callee in callees]
        if taken:
            kept = [None if each is None else self._keeps(each) for each in taken]
            return None if None in kept else tuple(one for each in kept for one in each or ())
        if isinstance(func, cst.Attribute) and func.attr.value in _FILLS:
            return self._read(func.value) or None
        return None

    @memoized(())
    def _keeps(self, parameter: Binding) -> tuple[Binding, ...] | None:
        """Return the attributes in which a function keeps what it is given, None if unknown."""
        flow = self._flow(self.scopes.function(parameter.node), self._carriers(parameter))
        return None if flow.handed_on else flow.kept

    def _kept(self, line: cst.CSTNode, value: cst.CSTNode, flow: _Flow) -> Iterator[Binding]:
        """Yield the bindings that get a value, or parts of it, and record what is returned."""
        if isinstance(line, (cst.Return, cst.Yield)):
            flow.returned = True
        elif isinstance(line, (cst.For, cst.CompFor)):
            if line.iter is value:
                yield from self._of_target(line.target)
        elif isinstance(line, _BINDING) and line.value is value:
            for target in _targets(line):
                yield from self._of_target(target)

    def _ends(self, node: cst.CSTNode, inner: cst.CSTNode) -> bool:
        """Return whether a node that uses a value drops its graph."""
        if type(node) in _OPAQUE:
            return True
        if isinstance(node, cst.Subscript) and node.value is not inner:
            return True
        if isinstance(node, cst.Attribute):
            return node.value is not inner or node.attr.value in _GRAPHLESS_PARTS
        return isinstance(node, cst.Call) and self._cuts(node)

    def _carriers(self, binding: Binding) -> Iterator[cst.CSTNode]:
        """Yield the names and attributes that may hold the value of a binding."""
        for name in self.scopes.readers(binding):
            if self.kinds.kind(name) not in _GRAPHLESS:
                yield name
        for attribute in self._attributes_of(binding):
            if attribute.attr.value not in _GRAPHLESS_PARTS:
                yield attribute

    def _attributes_of(self, binding: Binding) -> Sequence[cst.Attribute]:
        """Return the attributes that refer to a binding."""
        word = binding.name.rpartition(".")[2]
        if word not in self._attribute_words:
            self._attribute_words.add(word)
            for attribute in self.functions.attributes(word):
                for each in self.functions.attribute(attribute):
                    self._standing_for.setdefault(id(each), []).append(attribute)
        return self._standing_for.get(id(binding), ())

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
        if isinstance(node, cst.Subscript):
            return self._read(node.value)
        return self.functions.bindings(node)

    def _cuts(self, call: cst.Call) -> bool:
        func = call.func
        if isinstance(func, cst.Attribute) and func.attr.value in _CUT:
            return True
        return self.names.name(func) in _CUT_NAMES or self.kinds.kind(call) in _GRAPHLESS

    def _kept_and_trained(
        self, function: cst.FunctionDef | None, carrying: Iterable[Binding]
    ) -> bool:
        """Return whether another function trains on an attribute that holds a graph."""
        return any(
            reader is not function and self._steps_itself(reader)
            for bound in carrying
            if bound.how in (How.ASSIGN, How.AUGMENTED)
            and "." in bound.name
            and self.scopes.function(bound.node) is function
            for reader in self._attribute_readers.get(bound.name, ())
        )

    @cached_method
    def _steps_itself(self, function: cst.FunctionDef) -> bool:
        """Return whether a function contains a call that runs backward."""
        calls = self.functions.own(function, cst.Call)
        return any(map(self._steps, calls))

    @cached_property
    def _attribute_readers(self) -> dict[str, list[cst.FunctionDef]]:
        """The functions that read an attribute, by its path."""
        found: dict[str, dict[int, cst.FunctionDef]] = {}
        for node in self.tree.all(cst.Attribute):
            function = self.scopes.function(node)
            if function is not None and self.scopes.reads(node):
                found.setdefault(dotted(node), {})[id(function)] = function
        return {path: list(functions.values()) for path, functions in found.items()}


def _targets(
    assign: cst.Assign | cst.AnnAssign | cst.AugAssign | cst.NamedExpr,
) -> Iterator[cst.BaseExpression]:
    if isinstance(assign, cst.Assign):
        for target in assign.targets:
            yield target.target
    else:
        yield assign.target
