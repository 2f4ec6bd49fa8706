"""Layers: which layer feeds which, in `nn.Sequential`, lists of layers and `forward`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.scope.limits import ASSIGNED
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.values.known import ValueAnalysis
from torchlint.semantic.values.values import State

_LAYER: Final = re.compile(r"torch\.nn\.[A-Z]\w*")
_IN_ORDER: Final = "torch.nn.Sequential"
_CONTAINERS: Final = frozenset(
    {"torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict"}
)
_POOLS: Final = re.compile(r"torch\.nn\.(?:Adaptive)?(?:Max|Avg)Pool[123]d|torch\.nn\.Identity")
_POOL_CALLS: Final = re.compile(
    r"torch\.nn\.functional\.(?:adaptive_)?(?:max|avg)_pool[123]d|torch\.max_pool[123]d"
)


class Layer(NamedTuple):
    """A layer where it is created: the call, the qualified name of its class, its own name."""

    call: cst.Call
    type: str
    name: str


class LayerPair(NamedTuple):
    """A layer whose output goes only to `after`, possibly through pooling."""

    layer: Layer
    after: Layer


class Layers(ValueAnalysis):
    """Finds which layer feeds which."""

    def pairs(self) -> Iterator[LayerPair]:
        """Yield every pair of layers where the first feeds the second and nothing else.

        Of what meets in a method, only the layers of the file's own classes.
        """
        yield from self._listed_pairs()
        for owner in self.tree.own(cst.ClassDef):
            yield from self._forward_pairs(owner)

    # -- layers in a list --------------------------------------------

    def _listed_pairs(self) -> Iterator[LayerPair]:
        added: list[cst.Call] = []
        read: set[int] = set()
        for call in self.tree.all(cst.Call):
            if method_of(call) == "add_module":
                added.append(call)
            in_order = self.names.name(call.func) == _IN_ORDER or self._starts_sequence(call)
            if in_order and not self._is_taken_apart(call):
                yield from self._neighbours([arg.value for arg in call.args if not arg.star])
                for arg in call.args:
                    if arg.star == "*":
                        yield from self._splat(arg.value, read)
                    elif isinstance(arg.value, cst.Call):
                        yield from self._ordered(arg.value)
        yield from self._added_by_name(added)

    def _starts_sequence(self, call: cst.Call) -> bool:
        """Return whether an `nn.Sequential` subclass passes its layers to `super().__init__(…)`."""
        func = call.func
        if not isinstance(func, cst.Attribute) or func.attr.value != "__init__":
            return False
        base = func.value
        if not isinstance(base, cst.Call) or self.names.name(base.func) != "builtins.super":
            return False
        return self._is_sequence(self.scopes.class_of(call))

    def _is_sequence(self, owner: cst.ClassDef | None) -> bool:
        """Return whether a class runs its layers in the order in which it got them."""
        return (
            owner is not None
            and _IN_ORDER in self.functions.bases(owner)
            and not any(
                each.name.value == "forward" for each in self.tree.within(owner, cst.FunctionDef)
            )
        )

    def _added_by_name(self, calls: Sequence[cst.Call]) -> Iterator[LayerPair]:
        """Read adjacent lines `layers.add_module("conv", nn.Conv2d(…))` of a sequence."""
        last: tuple[cst.CSTNode | None, cst.CSTNode, str, cst.BaseExpression] | None = None
        for call in calls:
            line, func = self.tree.statement(call), call.func
            block = self.tree.parent(line)
            if len(call.args) != 2 or not isinstance(func, cst.Attribute):
                continue
            to, value = dotted(func.value), call.args[1].value
            if last is not None and last[0] is block and last[2] == to:
                if isinstance(block, (cst.IndentedBlock, cst.Module)):
                    if _next_to(block, last[1], line) and self._takes_in_order(func.value):
                        yield from self._neighbours([last[3], value])
            last = (block, line, to, value)

    def _takes_in_order(self, owner: cst.BaseExpression) -> bool:
        """Return whether layers are added to an `nn.Sequential`."""
        if dotted(owner) == "self":
            return self._is_sequence(self.scopes.class_of(owner))
        made = self.values.value_of(owner).node
        return isinstance(made, cst.Call) and self.names.name(made.func) == _IN_ORDER

    def _is_taken_apart(self, call: cst.Call) -> bool:
        """Return whether layers go to a class of this file that iterates over its children."""
        outer = self.tree.taker(call)
        owner = self.functions.definition(outer.func) if isinstance(outer, cst.Call) else None
        return isinstance(owner, cst.ClassDef) and any(
            dotted(name).startswith("self.")
            for loop in self.tree.within(owner, cst.For)
            for name in (loop.iter, *(a.value for a in getattr(loop.iter, "args", ())))
        )

    def _ordered(self, call: cst.Call) -> Iterator[LayerPair]:
        """Read `OrderedDict([("conv", nn.Conv2d(…)), …])`."""
        if self.names.name(call.func) != "collections.OrderedDict" or len(call.args) != 1:
            return
        entries = call.args[0].value
        if isinstance(entries, cst.Dict):
            found = [e.value for e in entries.elements if isinstance(e, cst.DictElement)]
            yield from self._neighbours(found)
        elif isinstance(entries, (cst.List, cst.Tuple)):
            pairs = [element.value for element in entries.elements]
            yield from self._neighbours(
                [
                    pair.elements[1].value
                    for pair in pairs
                    if isinstance(pair, cst.Tuple) and len(pair.elements) == 2
                ]
            )

    def _splat(self, value: cst.BaseExpression, read: set[int]) -> Iterator[LayerPair]:
        """Read the list literals that a list of layers is built from, each function once."""
        if isinstance(value, cst.List):
            yield from self._neighbours(_elements(value))
        callee = self.functions.callee(value) if isinstance(value, cst.Call) else None
        if callee is not None and id(callee) not in read:
            read.add(id(callee))
            for returned in self.functions.returns(callee):
                yield from self._splat(returned, read)
        if not isinstance(value, (cst.Name, cst.Attribute)):
            return
        for binding in self.functions.bindings(value):
            if binding.how not in (How.ASSIGN, How.AUGMENTED) or binding.value is None:
                continue
            for part in self._summands(binding.value):
                yield from self._neighbours(_elements(part))
        yield from self._appended(value)

    def _summands(self, value: cst.BaseExpression, depth: int = ASSIGNED) -> Iterator[cst.List]:
        """Yield the list literals of `layers + [a, b]`, and the earlier ones in `layers`."""
        if isinstance(value, cst.List):
            yield value
        elif isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
            yield from self._summands(value.left, depth)
            yield from self._summands(value.right, depth)
        elif depth:
            for binding in self.functions.bindings(value):
                if binding.how in (How.ASSIGN, How.AUGMENTED) and binding.value is not None:
                    yield from self._summands(binding.value, depth - 1)

    def _appended(self, value: cst.Name | cst.Attribute) -> Iterator[LayerPair]:
        """Read adjacent lines `layers.append(…)` and `layers.extend([…])`."""
        last: tuple[cst.CSTNode, cst.CSTNode, cst.BaseExpression] | None = None
        home = self.scopes.home(value)
        for line in self.tree.all(cst.SimpleStatementLine):
            added = _added(line, dotted(value))
            if added is None or self.scopes.home(line) is not home:
                continue
            block = self.tree.parent(line)
            if block is None or not isinstance(block, (cst.IndentedBlock, cst.Module)):
                continue
            if len(added) > 1:
                yield from self._neighbours(added)
            if last is not None and last[0] is block and _next_to(block, last[1], line):
                yield from self._neighbours([last[2], added[0]])
            last = (block, line, added[-1])

    def _neighbours(self, items: Sequence[cst.BaseExpression]) -> Iterator[LayerPair]:
        layers = [self._layer(item) for item in items]
        for index, layer in enumerate(layers):
            if layer is None:
                continue
            for after in layers[index + 1 :]:
                if after is not None and not self._pools(after.call, after.type):
                    yield LayerPair(layer, after)
                if after is None or not self._pools(after.call, after.type):
                    break

    def _layer(self, node: cst.BaseExpression) -> Layer | None:
        """Return the layer that a list element is: created in place, or under its own name."""
        if isinstance(node, cst.Call):
            name = self.names.name(node.func)
            if name is None or not _LAYER.fullmatch(name) or name in _CONTAINERS:
                return None
            return Layer(node, name, "")
        if isinstance(node, cst.Name):
            value, scope = self.scopes.only(node).assigned, self.scopes.scope(node).node
            if isinstance(value, cst.Call):
                uses = self.scopes.uses(self.scopes.only(node), scope)
                made = self._layer(value) if len(list(uses)) == 1 else None
                return Layer(made.call, made.type, node.value) if made else None
        return None

    def _pools(self, call: cst.Call, kind: str) -> bool:
        """Return whether a layer pools by maximum or plain mean, which preserve a constant."""
        if not _POOLS.fullmatch(kind):
            return False
        plain = "Max" in kind or "Adaptive" in kind or kind.endswith("Identity")
        return plain or self._pads_nothing(call, 2, 3)

    def _pads_nothing(self, call: cst.Call, padding: int, ceil_mode: int) -> bool:
        return all(
            self.values.argument(call, name, at).state is State.ABSENT
            for name, at in (("padding", padding), ("ceil_mode", ceil_mode))
        )

    # -- layers that meet in forward ---------------------------------------------

    def _forward_pairs(self, owner: cst.ClassDef) -> Iterator[LayerPair]:
        layers = self._attributes(owner)
        if not layers:
            return
        runs = self._runs(owner, layers)
        mentions = _by_name(self.tree.within(owner, cst.Attribute))
        for name, layer in layers.items():
            calls = runs.get(name, [])
            if len(calls) != 1:
                continue
            word = name.removeprefix("self.")
            places = (*mentions.get(word, ()), *self._of_others.get(word, ()))
            if self._handled_elsewhere(owner, name, calls[0], places):
                continue
            after = self._consumer(calls[0], layers)
            if after is not None:
                yield LayerPair(layer, after)

    def _attributes(self, owner: cst.ClassDef) -> dict[str, Layer]:
        """Return the layers that a class stores, by attribute name."""
        found: dict[str, Layer] = {}
        for path, bindings in self.scopes.scope_at(owner).bindings.items():
            if not path.startswith("self.") or len(bindings) != 1:
                continue
            value = bindings[0].value
            layer = self._layer(value) if isinstance(value, cst.Call) else None
            if layer is not None:
                found[path] = Layer(layer.call, layer.type, path)
        return found

    def _runs(self, owner: cst.ClassDef, layers: dict[str, Layer]) -> dict[str, list[cst.Call]]:
        found: dict[str, list[cst.Call]] = {}
        for call in self.tree.within(owner, cst.Call):
            path = dotted(call.func)
            if path in layers:
                found.setdefault(path, []).append(call)
        return found

    def _handled_elsewhere(
        self, owner: cst.ClassDef, path: str, call: cst.Call, mentions: Sequence[cst.Attribute]
    ) -> bool:
        """Return whether a layer is used other than by one call (its weights, a list)."""
        made = self.scopes.scope_at(owner).bindings[path][0].node
        return any(
            mention is not call.func and not self.tree.inside(mention, made) for mention in mentions
        )

    @cached_property
    def _of_others(self) -> dict[str, list[cst.Attribute]]:
        """The attributes of objects other than `self`, by name."""
        attributes = self.tree.all(cst.Attribute)
        return _by_name(each for each in attributes if not dotted(each).startswith("self."))

    def _consumer(self, call: cst.Call, layers: dict[str, Layer]) -> Layer | None:
        """Return the one layer that receives the result of a call."""
        value: cst.CSTNode = call
        for _ in range(ASSIGNED):
            holder = self.tree.parent(value)
            if isinstance(holder, cst.Arg):
                outer = self.tree.parent(holder)
                if not isinstance(outer, cst.Call) or outer.args[0] is not holder:
                    return None
                layer = layers.get(dotted(outer.func))
                if layer is not None and not self._pools(layer.call, layer.type):
                    return layer if len(outer.args) == 1 else None
                if layer is None and not self._pools_inline(outer):
                    return None
                value = outer
            elif isinstance(holder, cst.Assign):
                use = self.scopes.only_use(holder)
                if use is None:
                    return None
                value = use
            else:
                return None
        return None

    def _pools_inline(self, call: cst.Call) -> bool:
        name = self.names.name(call.func)
        if name is None or not _POOL_CALLS.fullmatch(name):
            return False
        return "max" in name or "adaptive" in name or self._pads_nothing(call, 3, 4)


def _elements(value: cst.List) -> list[cst.BaseExpression]:
    return [element.value for element in value.elements]


def _added(line: cst.SimpleStatementLine, name: str) -> list[cst.BaseExpression] | None:
    """Return the elements that a line adds to a list."""
    small = line.body[0]
    if len(line.body) != 1 or not isinstance(small, cst.Expr):
        return None
    call = small.value
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        return None
    if dotted(call.func) == f"{name}.append":
        return [call.args[0].value]
    value = call.args[0].value
    if dotted(call.func) == f"{name}.extend" and isinstance(value, cst.List) and value.elements:
        return _elements(value)
    return None


def _next_to(
    block: cst.IndentedBlock | cst.Module, first: cst.CSTNode, second: cst.CSTNode
) -> bool:
    return any(
        line is first and after is second
        for line, after in zip(block.body, block.body[1:], strict=False)
    )


def _by_name(attributes: Iterable[cst.Attribute]) -> dict[str, list[cst.Attribute]]:
    found: dict[str, list[cst.Attribute]] = {}
    for attribute in attributes:
        found.setdefault(attribute.attr.value, []).append(attribute)
    return found
