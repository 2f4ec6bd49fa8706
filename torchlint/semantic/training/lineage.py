"""Lineage: the calls of networks that a value was computed by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.scope.libraries import DRAWN, NETWORK_METHODS
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import last_word, method_of, receiver_of
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.losses import sent

_CUTS: Final = frozenset(
    "detach detach_ item tolist numpy argmax argmin eq ne gt ge lt le size dim numel".split()
)
_CUT_NAMES: Final = frozenset({
    "torch.argmax", "torch.eq", "torch.autograd.Variable", "builtins.float", "builtins.int",
    "builtins.len", "builtins.isinstance", "builtins.print", "builtins.range",
})  # fmt: skip
_CUT_PARTS: Final = frozenset("data shape device dtype grad".split())
_ASKS: Final = frozenset({"requires_grad", "requires_grad_"})
_LEAVES: Final = frozenset({"torch.nn.Parameter", "torch.autograd.grad"})
_GROWING: Final = ("append", "extend")
_DRAWS: Final = DRAWN | {"bernoulli", "multinomial"}
_TIMES: Final = 400
"""How many expressions are followed at most."""


class Ancestry(NamedTuple):
    """The calls of networks behind a value, each with the network that it runs.

    `asks`: a tensor that asks for gradients itself is among what it was computed from.
    `draws`: random numbers are. `given`: the parameters that calls out of sight fill.
    `complete`: everything could be followed.
    """

    calls: tuple[tuple[cst.Call, cst.BaseExpression], ...]
    asks: bool
    draws: bool
    given: tuple[cst.Param, ...]
    complete: bool


class _Walk:
    def __init__(self, cutting: bool) -> None:
        self.cutting = cutting
        self.seen: set[int] = set()
        self.calls: dict[cst.Call, cst.BaseExpression] = {}
        self.given: dict[cst.Param, None] = {}
        self.asks = False
        self.draws = False
        self.complete = True


class Lineage(LoopAnalysis):
    """Follows values back through names, attributes, containers and functions of the file."""

    @cached_method
    def of(self, value: cst.BaseExpression, recorded: bool = True) -> Ancestry:
        """Return what a value was computed by; `recorded` stops where its graph is cut."""
        walk = _Walk(recorded)
        self._visit(value, walk)
        return Ancestry(
            tuple(walk.calls.items()), walk.asks, walk.draws, tuple(walk.given), walk.complete
        )

    def of_arguments(self, call: cst.Call) -> Ancestry:
        """Return what the arguments of a call were computed by."""
        return self._of_all((arg.value for arg in call.args), recorded=True)

    def of_loss(self, backward: cst.Call, recorded: bool = True) -> Ancestry:
        """Return what a backward pass starts from was computed by."""
        return self._of_all(sent(backward), recorded)

    def _of_all(self, values: Iterable[cst.BaseExpression], recorded: bool) -> Ancestry:
        found = [self.of(value, recorded) for value in values]
        return Ancestry(
            tuple(dict(pair for each in found for pair in each.calls).items()),
            any(each.asks for each in found),
            any(each.draws for each in found),
            tuple(dict.fromkeys(param for each in found for param in each.given)),
            all(each.complete for each in found),
        )

    def network(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the network whose forward pass, or another computing method, a call runs."""
        found = self.loops.module_call(call)
        if found is not None:
            return found
        func = call.func
        if not isinstance(func, cst.Attribute) or func.attr.value in NETWORK_METHODS:
            return None
        return func.value if self.kinds.kind(func.value) is Kind.MODULE else None

    def _visit(self, node: cst.CSTNode, walk: _Walk) -> None:
        if id(node) in walk.seen or (walk.cutting and self.kinds.kind(node) is Kind.NDARRAY):
            return  # an array of NumPy has no graph
        walk.seen.add(id(node))
        if len(walk.seen) > _TIMES:
            walk.complete = False
        elif type(node) is cst.Name:
            self._visit_name(node, walk)
        elif type(node) is cst.Call:
            self._visit_call(node, walk)
        elif type(node) is cst.Attribute:
            self._visit_attribute(node, walk)
        elif type(node) is cst.Subscript:
            self._visit(node.value, walk)
        elif type(node) is cst.IfExp:
            self._visit(node.body, walk)
            self._visit(node.orelse, walk)
        elif not isinstance(node, (cst.Lambda, cst.Comparison, cst.FormattedString)):
            for child in self.tree.children(node):
                self._visit(child, walk)

    def _visit_name(self, node: cst.Name, walk: _Walk) -> None:
        if self.names.name(node) is not None:
            return
        if self.kinds.kind(node) in (Kind.NUMBER, Kind.STRING, Kind.DEVICE):
            return
        key = node.value, self.scopes.home(node)
        walk.asks = walk.asks or key in self._asking
        for binding in self.scopes.reaching(node):
            self._visit_binding(binding, walk)
        for value in self._written.get(key, ()):
            self._visit(value, walk)

    @cached_property
    def _written(self) -> dict[tuple[str, cst.CSTNode], list[cst.BaseExpression]]:
        """What each function writes into a name: `found[mask] = value`, `found.append(value)`."""
        found: dict[tuple[str, cst.CSTNode], list[cst.BaseExpression]] = {}
        tree = self.scopes.tree
        for line in tree.all(cst.Assign):
            for target in line.targets:
                for name in tree.within(target, cst.Name):
                    write = self.values.writes.at(name)
                    if write is not None and write.node is target:
                        key = name.value, self.scopes.home(name)
                        found.setdefault(key, []).append(line.value)
        for call in tree.all(cst.Call):
            grown = receiver_of(call, *_GROWING)
            if isinstance(grown, cst.Name):
                given = (arg.value for arg in call.args)
                found.setdefault((grown.value, self.scopes.home(grown)), []).extend(given)
        return found

    @cached_property
    def _asking(self) -> frozenset[tuple[str, cst.CSTNode]]:
        """The names, each with its function, whose tensors are made to ask for gradients."""
        return frozenset(
            (each.value.value, self.scopes.home(each))
            for each in self.scopes.tree.all(cst.Attribute)
            if type(each.value) is cst.Name and each.attr.value in _ASKS
        )

    def _visit_binding(self, binding: Binding, walk: _Walk) -> None:
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            if self.functions.owner_of_self(binding.node) is not None:
                return
            given = self.functions.given(binding.node)
            if not given or self.functions.given_unseen(binding.node):
                walk.given[binding.node] = None
            for each in given:
                self._visit(each, walk)
        elif binding.value is not None:
            self._visit(binding.value, walk)
            if isinstance(binding.node, cst.AugAssign):
                self._visit_before(binding, walk)
        elif binding.how in (How.OTHER, How.AUGMENTED):
            walk.complete = False

    def _visit_before(self, binding: Binding, walk: _Walk) -> None:
        """Follow the value that an augmented assignment adds to."""
        target = cst.ensure_type(binding.node, cst.AugAssign).target
        if isinstance(target, cst.Name):
            for other in self.scopes.reaching_name(
                target.value, binding.node, self.scopes.scope(target)
            ):
                if other is not binding and id(other) not in walk.seen:
                    walk.seen.add(id(other))
                    self._visit_binding(other, walk)

    def _visit_attribute(self, node: cst.Attribute, walk: _Walk) -> None:
        if self.names.name(node) is not None:
            return
        if node.attr.value in _CUT_PARTS and (walk.cutting or node.attr.value != "data"):
            return
        bindings = self.functions.attribute(node)
        for binding in bindings:
            self._visit_binding(binding, walk)
        if bindings or (isinstance(node.value, cst.Name) and node.value.value == "self"):
            return
        self._visit(node.value, walk)

    def _visit_call(self, call: cst.Call, walk: _Walk) -> None:
        name = self.names.name(call.func)
        if walk.cutting and self.gradients.grad(call) is Grad.OFF:
            return
        method = method_of(call) if name is None else ""
        if walk.cutting and (name in _CUT_NAMES or method in _CUTS):
            return
        walk.asks = walk.asks or name in _LEAVES or method == "requires_grad_" or self._told(call)
        last = (name or "").rpartition(".")[2] or method
        walk.draws = walk.draws or last.removesuffix("_like") in _DRAWS
        network, callee = self.network(call), self.functions.callee(call)
        by_itself = callee is not None and network is call.func and self.functions.is_self(network)
        if network is not None and not by_itself:
            walk.calls[call] = network
        elif callee is not None:
            self._visit_function(call, callee, walk)
        elif name is None:
            self._visit_unknown(call, walk)
        for arg in call.args:
            self._visit(arg.value, walk)

    def _visit_function(self, call: cst.Call, callee: cst.FunctionDef, walk: _Walk) -> None:
        for value in self.functions.returns(callee):
            self._visit(value, walk)
        if isinstance(call.func, cst.Attribute) and self.names.name(call.func) is None:
            self._visit(call.func.value, walk)

    def _visit_unknown(self, call: cst.Call, walk: _Walk) -> None:
        """Follow the receiver of a method; a network that is handed over may be run unseen."""
        if any(self.kinds.kind(arg.value) is Kind.MODULE for arg in call.args):
            walk.complete = False
        if isinstance(call.func, cst.Attribute):
            self._visit(call.func.value, walk)
        elif not isinstance(call.func, cst.Name):
            self._visit(call.func, walk)

    def backward_passes(self) -> Iterator[cst.Call]:
        """Yield the backward passes of the file."""
        return filter(self.loops.goes_backward, self.tree.all(cst.Call))

    def _told(self, call: cst.Call) -> bool:
        """Return whether a call passes `requires_grad=True`."""
        given = self.values.argument_node(call, "requires_grad")
        return given is not None and last_word(given.value) == "True"
