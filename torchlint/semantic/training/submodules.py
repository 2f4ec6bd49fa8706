"""Submodules: the classes of the networks that an expression can be, through containers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.calls.instances import PREPARING, SAME, WRAPPERS, parts_of
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.values.known import ValueAnalysis

_CONTAINERS: Final = frozenset({
    "torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict", "builtins.list",
    "builtins.tuple", "builtins.dict", "builtins.zip", "builtins.enumerate", "builtins.reversed",
    "collections.OrderedDict",
})  # fmt: skip
_MEMBERS: Final = frozenset("values items __iter__".split())
_PARTS: Final = frozenset("children named_children modules named_modules".split())
_HANDED_ON: Final = (*WRAPPERS, "copy.copy", "copy.deepcopy")
_LAYER: Final = re.compile(r"torch\.nn\.[A-Z]\w*|torch\.nn\.modules\.\w+\.[A-Z]\w*")
_NO_NETWORKS: Final = (cst.SimpleString, cst.List, cst.Tuple, cst.Dict)
"""Names of members, and containers that are empty where they are made."""
_BOUND: Final = (How.ASSIGN, How.LOOP, How.UNPACKED)


class Submodules(ValueAnalysis):
    """Follows networks to their classes: through names, lists of blocks, loops and wrappers.

    Every member of a container counts, whichever one is asked for.
    """

    @memoized(())
    def classes(self, node: cst.BaseExpression) -> tuple[cst.ClassDef, ...]:
        """Return the classes in view of which an expression, or its members, are instances."""
        known = self.functions.instance_of(node)
        if known is not None:
            return (known,)
        found = (self.functions.instance_of(each) for each in self._ends(node))
        return tuple(dict.fromkeys(owner for owner in found if owner is not None))

    def is_of_torch(self, node: cst.BaseExpression) -> bool:
        """Return whether a network is surely one of torch's own classes, down to all members."""
        made = [each for each in self._ends(node) if not isinstance(each, _NO_NETWORKS)]
        return bool(made) and all(map(self._is_layer, made))

    def _is_layer(self, node: cst.BaseExpression) -> bool:
        name = self.names.name(node.func) if isinstance(node, cst.Call) else None
        if name is None or _LAYER.fullmatch(name) is None:
            return False
        given = (arg.value for arg in cst.ensure_type(node, cst.Call).args)
        return not any(map(self.classes, given))

    def _ends(self, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """Yield where following a network and its members ends: instances, or what is unknown."""
        seen: set[int] = set()
        edge = [node]
        while edge:
            each = edge.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            onward = []
            if self.functions.instance_of(each) is None:
                onward = list(self._onward(each))
            if not onward or self._is_open(each):
                yield each
            edge += onward

    def _is_open(self, node: cst.BaseExpression) -> bool:
        """Return whether a name is a parameter to which code that is not in view may pass more."""
        bindings = self.scopes.reaching(node)
        return any(
            each.parameter is not None and self.functions.given_unseen(each.parameter)
            for each in bindings
        )

    def _onward(self, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """Yield the expressions that a value, or one of its members, can come from."""
        if isinstance(node, (cst.Name, cst.Attribute)):
            bindings = self.functions.bindings(node)
            yield from self._bound(node, bindings)
            if isinstance(node, cst.Attribute) and not bindings:
                yield from self._kept(node)
                yield from self._entries(node)
        elif isinstance(node, cst.Subscript):
            yield node.value
        elif isinstance(node, cst.Call):
            yield from self._called(node)
        else:
            yield from parts_of(node)

    def _bound(
        self, node: cst.Name | cst.Attribute, bindings: tuple[Binding, ...]
    ) -> Iterator[cst.BaseExpression]:
        yield from self._values(each for each in bindings if each.how in _BOUND)
        for binding in bindings:
            if binding.parameter is not None:
                yield from self.functions.given(binding.parameter)
        yield from self.origins.additions(node)

    def _kept(self, node: cst.Attribute) -> Iterator[cst.BaseExpression]:
        """Yield what the classes of a network keep under an attribute."""
        for owner in self.classes(node.value):
            for line in self.functions.lineage(owner):
                bindings = self.scopes.scope_at(line).bindings.get(f"self.{node.attr.value}", ())
                yield from self._values(bindings)

    def _values(self, bindings: Iterable[Binding]) -> Iterator[cst.BaseExpression]:
        """Yield the values that attributes are set to, and what is added to these later."""
        for binding in bindings:
            if binding.value is not None and not self.names.is_empty(binding.value):
                yield binding.value
            if isinstance(binding.node, cst.Assign):
                for target in binding.node.targets:
                    if isinstance(target.target, cst.Attribute):
                        yield from self.origins.additions(target.target)

    def _entries(self, node: cst.Attribute) -> Iterator[cst.BaseExpression]:
        """Yield the entries of a `ModuleDict` that are read as attributes (`self.parts.head`)."""
        for made in self.origins.of(node.value).values:
            if isinstance(made, cst.Call) and made.args:
                if self.names.name(made.func) == "torch.nn.ModuleDict":
                    yield from self.origins.of(made.args[0].value, (node.attr.value,)).values

    def _called(self, call: cst.Call) -> Iterator[cst.BaseExpression]:
        name, func = self.names.name(call.func), call.func
        if name in _CONTAINERS:
            yield from (arg.value for arg in call.args)
        elif name in _HANDED_ON:
            yield from (arg.value for arg in call.args[:1])
        elif name is not None and name.startswith("torch.") and "wrap" in name and call.args:
            yield call.args[0].value
        elif isinstance(definition := self.functions.definition(func), cst.FunctionDef):
            yield from self.functions.returns(definition)
        elif isinstance(func, cst.Attribute):
            method = func.attr.value
            if method in SAME or method in _MEMBERS:
                yield func.value
            elif method in _PARTS:
                yield from self._parts(func.value)
            elif method in PREPARING:
                yield from (arg.value for arg in call.args)

    def _parts(self, network: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """Yield the networks that a network, or each member of a container, keeps."""
        classes = self.classes(network)
        if not classes:
            yield network
        for owner in classes:
            for line in self.functions.lineage(owner):
                for name, bindings in self.scopes.scope_at(line).bindings.items():
                    if name.startswith("self."):
                        yield from self._values(bindings)
