"""Classes: all those in view of which a value may be an instance, or hold instances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.calls.aliases import Aliases
from torchlint.semantic.calls.instances import (
    CONTAINERS,
    MEMBERS,
    SAME,
    WRAPPERS,
    Instances,
    parts_of,
)
from torchlint.semantic.calls.part import Part
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.syntax.methods import choices_of, last_word, receiver_of

_SEQUENTIAL: Final = "torch.nn.Sequential"


class Classes(Part):
    """Follows instances through choices, tables of classes, and containers of networks."""

    def __init__(self, aliases: Aliases, instances: Instances) -> None:
        super().__init__(aliases.functions)
        self._aliases = aliases
        self._instances = instances

    @memoized(())
    def of(self, node: cst.CSTNode) -> tuple[cst.ClassDef, ...]:
        """Return the classes in view of which a value may be an instance."""
        one = self.functions.instance_of(node)
        if one is not None:
            return (one,)
        if not self._instances.may_be(node):
            return ()
        found: dict[cst.ClassDef, None] = {}
        if isinstance(node, cst.Call):
            named = self._aliases.named(node.func)
            found.update((each, None) for each in named if isinstance(each, cst.ClassDef))
        for each in self._values(node):
            found.update(dict.fromkeys(self.of(each)))
        return tuple(found)

    @memoized(())
    def run(self, node: cst.CSTNode) -> tuple[cst.FunctionDef, ...]:
        """Return the methods that calling a value may run, as an object or as a chain of them."""
        if not self._instances.may_be(node):
            return ()
        owners = dict.fromkeys(each for value in self._chained(node) for each in self.of(value))
        found = (self.functions.called_object(owner) for owner in owners)
        return tuple(dict.fromkeys(each for each in found if each is not None))

    def _chained(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield a value, and the networks of which it is a `Sequential`."""
        yield node
        held = [
            value for each in self.functions.bindings(node) for value in self.functions.held(each)
        ]
        for value in held or (node,):
            if isinstance(value, cst.Call) and self.names.name(value.func) == _SEQUENTIAL:
                yield from self._members(node)
                return

    def _values(self, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """Yield the expressions that a value may be one of."""
        yield from choices_of(node)
        if isinstance(node, (cst.Name, cst.Attribute)):
            for binding in self.functions.bindings(node):
                if binding.how is How.LOOP and binding.value is not None:
                    yield from self._members(binding.value)
                else:
                    yield from self.functions.held(binding)
        elif isinstance(node, cst.Subscript):
            yield from self._members(node.value)
        elif isinstance(node, cst.Call):
            yield from self._returned(node)
            kept = receiver_of(node, *SAME)
            if kept is not None:
                yield kept
            elif node.args and self.names.name(node.func) in WRAPPERS:
                yield node.args[0].value

    def _returned(self, call: cst.Call) -> Iterator[cst.BaseExpression]:
        for function in self._aliases.held(call.func):
            yield from self.functions.returns(function)

    def _members(self, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """Yield the items of a container, those of the containers in it as well."""
        edge, seen = [node], {node}
        while edge:
            at = edge.pop()
            if isinstance(at, cst.BaseExpression) and not isinstance(
                at, (cst.List, cst.Tuple, cst.Dict, cst.ListComp, cst.DictComp)
            ):
                yield at
            for each in self._inside(at):
                if each not in seen:
                    seen.add(each)
                    edge.append(each)

    def _inside(self, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        yield from parts_of(node)
        if isinstance(node, (cst.Name, cst.Attribute)):
            for binding in self.functions.bindings(node):
                yield from self.functions.held(binding)
            yield from self.added(node)
        elif isinstance(node, cst.Subscript):
            yield node.value
        elif isinstance(node, cst.Call):
            yield from self._returned(node)
            if self.names.name(node.func) in CONTAINERS:
                yield from (arg.value for arg in node.args)
            elif (held := receiver_of(node, *MEMBERS)) is not None:
                yield held

    def added(self, container: cst.Name | cst.Attribute) -> Iterator[cst.BaseExpression]:
        """Yield what is added to a container after it was made."""
        bindings = self.functions.bindings(container)
        for held, value in self._instances.additions.get(last_word(container), ()):
            if any(each in bindings for each in self.functions.bindings(held)):
                yield value
