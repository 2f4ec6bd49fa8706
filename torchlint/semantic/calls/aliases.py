"""Aliases: other names and places that hold functions in view, through which they are called."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.part import Part
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding
from torchlint.semantic.syntax.methods import choices_of, last_word, receiver_of

_GENERAL: Final = ("forward", "__call__", "__init__")
_DEFINITIONS: Final = (cst.FunctionDef, cst.ClassDef)


class Aliases(Part):
    """Follows functions through names, choices, dictionaries, partial objects and parameters."""

    def calls(self, function: cst.FunctionDef) -> Iterator[cst.Call]:
        """Yield the calls that may run a function under another name, in no order."""
        owner = self.scopes.class_of(function)
        wanted: list[cst.FunctionDef | cst.ClassDef] = [function]
        if owner is not None and function.name.value == "__init__":
            wanted = [*self.functions.inheriting(function, owner)]
        for each in wanted:
            for word in (*self.functions.holders(each.name.value), *self._branched.get(each, ())):
                for mention in (*self.tree.spelled(word), *self.functions.attributes(word)):
                    call = self._called(mention)
                    if call is not None and each in self.named(call.func):
                        yield call

    def named_like(self, method: cst.FunctionDef) -> list[cst.Call]:
        """Return the calls, on objects of an unknown class, of what has a method's name."""
        if self.scopes.class_of(method) is None or method.name.value in _GENERAL:
            return []
        mentions = self.functions.attributes(method.name.value)
        calls = [self.tree.parent(each) for each in mentions if not self.held(each)]
        return [
            call
            for call in calls
            if isinstance(call, cst.Call)
            and last_word(call.func) == method.name.value
            and self.names.name(call.func) is None
        ]

    def _called(self, mention: cst.CSTNode) -> cst.Call | None:
        """Return the call of a name, or of an entry of a dictionary with that name."""
        called, holder = mention, self.tree.parent(mention)
        if type(holder) is cst.Subscript and holder.value is mention:
            called, holder = holder, self.tree.parent(holder)
        return holder if type(holder) is cst.Call and holder.func is called else None

    # -- values -------------------------------------------------------------------

    def held(self, node: cst.CSTNode) -> tuple[cst.FunctionDef, ...]:
        """Return the functions in view that calling a value may run."""
        return tuple(each for each in self.named(node) if isinstance(each, cst.FunctionDef))

    @memoized(())
    def named(self, node: cst.CSTNode) -> tuple[cst.FunctionDef | cst.ClassDef, ...]:
        """Return the functions and classes in view that a value may be."""
        found = dict.fromkeys(self._defined(node))
        for each in self._sources(node):
            named = self.functions.definition(each)
            if named is not None:
                found[named] = None
            elif each is not node:
                found.update(dict.fromkeys(self.named(each)))
        return tuple(found)

    def surely_held(self, node: cst.CSTNode) -> tuple[cst.FunctionDef, ...]:
        """Return the functions in view that calling a value runs, none if it may run another."""
        found = self.surely_named(node)
        if not found and type(node) is cst.Attribute:
            return self._methods(node)
        functions = tuple(each for each in found if isinstance(each, cst.FunctionDef))
        return functions if len(functions) == len(found) else ()

    def _methods(self, node: cst.Attribute) -> tuple[cst.FunctionDef, ...]:
        """Return the methods that a name stands for, of objects made of one of several classes."""
        made = [each.assigned for each in self.functions.bindings(node.value)]
        named = [self.surely_named(one.func) if type(one) is cst.Call else () for one in made]
        found = [
            self.functions.method(owner, node.attr.value) if type(owner) is cst.ClassDef else None
            for owners in named
            for owner in owners
        ]
        return (*filter(None, found),) if all(named) and None not in found else ()

    @memoized(())
    def surely_named(self, node: cst.CSTNode) -> tuple[cst.FunctionDef | cst.ClassDef, ...]:
        """Return the functions and classes in view that a value is one of, none if it may not."""
        named = self.functions.definition(node)
        if named is not None:
            return (named,)
        defined = [(each,) for each in self._defined(node)]
        _, *sources = self._sources(node)
        if defined and len(defined) + len(sources) < len(self.scopes.reaching(node)):
            return ()
        found = [*defined, *(self.surely_named(each) for each in sources)]
        return tuple(dict.fromkeys(each for inner in found for each in inner)) if all(found) else ()

    def _defined(self, node: cst.CSTNode) -> list[cst.FunctionDef | cst.ClassDef]:
        """Return the definitions of a name that has another binding in another branch."""
        found = [each.node for each in self.scopes.reaching(node)]
        return [each for each in found if isinstance(each, _DEFINITIONS) and len(found) > 1]

    @cached_property
    def _branched(self) -> dict[cst.CSTNode, list[str]]:
        """The names of definitions that have other bindings, too, by definition."""
        found: dict[cst.CSTNode, list[str]] = {}
        for scope in self.scopes.opened():
            for word, bindings in scope.bindings.items():
                for each in bindings if len(bindings) > 1 and not scope.is_class else ():
                    if isinstance(each.node, _DEFINITIONS):
                        found.setdefault(each.node, []).append(word)
        return found

    def _sources(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield a value itself and the expressions that it may be one of."""
        yield node
        yield from choices_of(node)
        if type(node) is cst.Subscript:
            yield from self._entries(node.value)
        elif type(node) is cst.Call:
            table = receiver_of(node, "get")
            if table is not None:
                yield from self._entries(table)
            elif node.args and self.names.is_partial(node):
                yield node.args[0].value
            else:
                for maker in self.surely_held(node.func):
                    yield from self.functions.returns(maker)
        elif type(node) is cst.Name or type(node) is cst.Attribute:
            for binding in self._bindings(node):
                yield from self.functions.held(binding)

    def _bindings(self, node: cst.Name | cst.Attribute) -> tuple[Binding, ...]:
        return self.functions.bindings(node) if last_word(node) in self._targets else ()

    def _entries(self, table: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """Yield the values of a literal dictionary, or of one that a name holds."""
        held: list[cst.BaseExpression | None] = [table]
        if isinstance(table, (cst.Name, cst.Attribute)):
            held = [each.assigned for each in self._bindings(table)]
        for value in held:
            if isinstance(value, cst.Dict):
                yield from (each.value for each in value.elements)

    @cached_property
    def _targets(self) -> frozenset[str]:
        """The words that something is assigned or passed to, which may be functions in view."""
        names = {each.name.value for each in self.tree.all(cst.FunctionDef)}
        names.update(each.name.value for each in self.tree.all(cst.ClassDef))
        return frozenset(to for name in names for to in self.functions.holders(name))
