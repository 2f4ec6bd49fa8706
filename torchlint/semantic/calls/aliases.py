"""Aliases: other names and places that hold functions in view, through which they are called."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.part import Part
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import choices_of, last_word, receiver_of

_GENERAL: Final = ("forward", "__call__", "__init__")
_DEFINITIONS: Final = (cst.FunctionDef, cst.ClassDef)


class Aliases(Part):
    """Follows functions through names, choices, dictionaries, partial objects and parameters."""

    def calls(self, function: cst.FunctionDef) -> Iterator[cst.Call]:
        """Yield the calls that may run a function under another name, in no order."""
        owner = self.scopes.class_of(function)
        begins = owner is not None and function.name.value == "__init__"
        wanted = owner if begins and owner is not None else function
        words = (*self._words(wanted.name.value), *self._branched.get(wanted, ()))
        for word in words:
            for mention in (*self.tree.spelled(word), *self.functions.attributes(word)):
                call = self._called(mention)
                if call is not None and wanted in self.named(call.func):
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
        functions = tuple(each for each in found if isinstance(each, cst.FunctionDef))
        return functions if len(functions) == len(found) else ()

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
            elif node.args and self.names.name(node.func) == "functools.partial":
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

    # -- words --------------------------------------------------------------------

    def _words(self, word: str) -> list[str]:
        """Return the words that may hold what a word holds, itself left out."""
        found = [word]
        for each in found:
            found += [to for to in self._flows.get(each, ()) if to not in found]
        return found[1:]

    @cached_property
    def _targets(self) -> frozenset[str]:
        """The words that something is assigned or passed to, which may be functions in view."""
        names = {each.name.value for each in self.tree.all(cst.FunctionDef)}
        names.update(each.name.value for each in self.tree.all(cst.ClassDef))
        return frozenset(to for name in names for to in self._words(name))

    @cached_property
    def _flows(self) -> dict[str, dict[str, None]]:
        """The words that values with a word are assigned or passed to."""
        found: dict[str, dict[str, None]] = {}
        for binding in self.scopes.bindings():
            if binding.how is How.ASSIGN and binding.value is not None:
                target = binding.name.rpartition(".")[2]
                for word in self._written(binding.value):
                    found.setdefault(word, {})[target] = None
        for call in self.tree.all(cst.Call):
            for place, arg in enumerate(call.args):
                for word in self._written(arg.value):
                    taken = found.setdefault(word, {})
                    taken.update(dict.fromkeys(self._takers(call, place, arg)))
        return found

    def _takers(self, call: cst.Call, place: int, arg: cst.Arg) -> Iterator[str]:
        """Yield the names that parameters may have to which a call passes an argument."""
        if arg.keyword is not None:
            yield arg.keyword.value
            return
        for parameters in self._parameters.get(last_word(call.func), ()):
            yield from parameters[place : place + 2]

    @cached_property
    def _parameters(self) -> dict[str, list[list[str]]]:
        """The parameters of the functions and classes in view, by the word that calls them."""
        found: dict[str, list[list[str]]] = {}
        for function in self.tree.all(cst.FunctionDef):
            word, owner = function.name.value, self.scopes.scope(function).node
            if word == "__init__" and isinstance(owner, cst.ClassDef):
                word = owner.name.value
            parameters = (*function.params.posonly_params, *function.params.params)
            found.setdefault(word, []).append([each.name.value for each in parameters])
        return found

    def _written(self, value: cst.CSTNode) -> Iterator[str]:
        """Yield the words of the values that an expression chooses from."""
        if type(value) is cst.Name or type(value) is cst.Attribute:
            yield last_word(value)
        elif type(value) is cst.Dict:
            yield from (word for each in value.elements for word in self._written(each.value))
        elif type(value) is cst.Subscript:
            yield from self._written(value.value)
        elif type(value) is cst.Call and value.args and last_word(value.func) == "partial":
            yield from self._written(value.args[0].value)
        elif (table := receiver_of(value, "get")) is not None:
            yield from self._written(table)
        else:
            for choice in choices_of(value):
                yield from self._written(choice)
