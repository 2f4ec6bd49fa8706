"""Instances: which names may hold an instance of a class of this file, judged by spelling."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.calls.annotations import named_types
from torchlint.semantic.scope.names import Names
from torchlint.semantic.scope.scopes import Binding, How, Scopes
from torchlint.semantic.syntax.methods import last_word
from torchlint.semantic.syntax.tree import Tree

WRAPPERS: Final = frozenset({
    "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel", "torch.compile",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
})  # fmt: skip
"""Functions that return the network passed to them."""
SAME: Final = frozenset("to cuda cpu half float double bfloat16 train eval".split())
"""Methods that return their own object."""
PREPARING: Final = ("prepare", "setup", "setup_dataloaders", "setup_optimizers")
"""Methods that return all their arguments (`accelerator.prepare(…)`)."""
_CALLED: Final = ("forward", "__call__")
_SURE: Final = ""
"""The source of flows that always carry an instance."""


class _Flow(NamedTuple):
    """A flow of instances from one word to another: `target` may hold one if `source` does."""

    source: str
    target: str
    where: str = _SURE


_Taker = dict[int, set[str]]
"""The functions that one word calls: the parameter names by argument position."""
_ASSIGN: Final = How.ASSIGN
_GIVEN: Final = (_ASSIGN, How.PARAMETER)


class Instances:
    """Separates names that may hold an instance of a class of this file from all others."""

    def __init__(self, tree: Tree, scopes: Scopes, names: Names) -> None:
        self.tree = tree
        self.scopes = scopes
        self.names = names

    def may_be_in(self, word: str) -> bool:
        """Return whether a name, or an attribute with that name, may hold an instance."""
        return word in self.words

    def may_be(self, value: cst.CSTNode) -> bool:
        """Return whether an expression may be an instance."""
        return self._source(value) in self.words

    @cached_property
    def words(self) -> frozenset[str]:
        """All words that may hold an instance, plus `module`: the network inside a wrapper."""
        if not self.tree.all(cst.ClassDef):
            return frozenset()
        flows = [*self._bound(), *self._given(), *self._returned(), *self._registered()]
        sure = (*self._first_parameters(), *self._declared())
        return _reached(flows, {_SURE, "module", *sure})

    @cached_property
    def _classes(self) -> frozenset[str]:
        """The words that may refer to a class in view."""
        named = {binding.name for binding in self.scopes.bindings() if binding.how is How.CLASS}
        flows = (
            _Flow(source, _last(binding.name))
            for binding in self.scopes.bindings()
            if binding.how is _ASSIGN and (source := self._class_word(binding.value)) is not None
        )
        return _reached(list(flows), named)

    def _class_word(self, value: cst.CSTNode | None) -> str | None:
        if type(value) is cst.Name:
            return value.value
        if type(value) is cst.Attribute and self.names.linked(value):
            return value.attr.value
        if type(value) is cst.Call and value.args and self._is_partial(value):
            return self._class_word(value.args[0].value)
        return None

    def _is_partial(self, call: cst.Call) -> bool:
        return self._knows_partial and self.names.name(call.func) == "functools.partial"

    @cached_property
    def _knows_partial(self) -> bool:
        """Whether the file imports something that may be `functools.partial`."""
        return any(binding.qualified.startswith("functools") for binding in self.scopes.bindings())

    # -- values --------------------------------------------------------

    def _source(self, value: cst.CSTNode | None) -> str | None:
        """Return the word that must hold an instance for a value to be one, None without one."""
        if type(value) is cst.Name:
            return value.value
        if type(value) is cst.Attribute:
            return self._source(value.value) if value.attr.value == "module" else value.attr.value
        return self._made(value) if type(value) is cst.Call else None

    def _made(self, call: cst.Call) -> str | None:
        func = call.func
        made = self._class_word(func)
        if made in self._classes:
            return _SURE
        if type(func) is cst.Attribute and func.attr.value in SAME:
            return self._source(func.value)
        name = self.names.name(func)
        if name in WRAPPERS:
            return self._source(call.args[0].value) if call.args else None
        if name == "builtins.super":
            return _SURE
        held = func.value if type(func) is cst.Subscript else None
        return _result(last_word(held) if held is not None else last_word(func))

    # -- flows ---------------------------------------------------

    def _first_parameters(self) -> Iterator[str]:
        """Yield the first parameters of methods, which hold the instance."""
        for function in self.tree.all(cst.FunctionDef):
            if self._is_method(function):
                parameters = (*function.params.posonly_params, *function.params.params)
                yield from (first.name.value for first in parameters[:1])

    def _declared(self) -> Iterator[str]:
        """Yield the parameters that are declared to be an instance of a class in view."""
        for parameter in self.tree.all(cst.Param):
            if parameter.annotation is not None:
                for each in named_types(parameter.annotation.annotation):
                    if self._class_word(each) in self._classes:
                        yield parameter.name.value

    def _is_method(self, function: cst.FunctionDef) -> bool:
        return self.scopes.scope(function).is_class

    def _bound(self) -> Iterator[_Flow]:
        """Yield the flows through assignments and parameter defaults."""
        for binding in self.scopes.bindings():
            source = self._source(self._bound_value(binding))
            if source is not None:
                yield _Flow(source, _last(binding.name))

    def _returned(self) -> Iterator[_Flow]:
        """Yield the flows from what functions return, alone or in a tuple, to their calls."""
        for line in self.tree.all(cst.Return):
            function = self.scopes.function(line)
            parts = line.value.elements if type(line.value) is cst.Tuple else ()
            for value in (line.value, *(each.value for each in parts)):
                source = self._source(value)
                if source is not None and function is not None:
                    yield _Flow(source, _result(function.name.value))

    def _registered(self) -> Iterator[_Flow]:
        """Yield the flows from classes and functions in a dictionary to calls of its entries."""
        for binding in self.scopes.bindings():
            if binding.how is _ASSIGN and type(binding.value) is cst.Dict:
                for each in binding.value.elements:
                    word = last_word(each.value)
                    source = _SURE if word in self._classes else _result(word)
                    yield _Flow(source, _result(_last(binding.name)))

    def _bound_value(self, binding: Binding) -> cst.BaseExpression | None:
        if binding.how in _GIVEN:
            return binding.value
        call = binding.value
        if type(call) is not cst.Call or len(binding.path) != 1 or binding.how is not How.UNPACKED:
            return None
        func, position = call.func, binding.path[0]
        if type(func) is not cst.Attribute or func.attr.value not in PREPARING:
            return call
        return call.args[position].value if position < len(call.args) else None

    def _given(self) -> Iterator[_Flow]:
        """Yield the flows from arguments of calls to parameters."""
        for call in self.tree.all(cst.Call):
            if not call.args:
                continue
            partial = self._is_partial(call)
            takers = self._taking(call, partial)
            place = -1 if partial else 0
            for arg in call.args:
                if arg.keyword is not None:
                    source = self._source(arg.value)
                    if source is not None:
                        yield _Flow(source, arg.keyword.value)
                    continue
                source = self._source(arg.value) if takers else None
                if source is not None:
                    for taker, where in takers:
                        for name in taker.get(place, ()):
                            yield _Flow(source, name, where)
                place += 1

    def _taking(self, call: cst.Call, partial: bool) -> list[tuple[_Taker, str]]:
        """Return the functions that a call may run, and the word that must hold an instance."""
        found = []
        for func in [arg.value for arg in call.args] if partial else (call.func,):
            word = last_word(func)
            if word in self._takers:
                found.append((self._takers[word], _SURE))
        called = self._source(call.func) if _SURE in self._takers else None
        if called is not None:
            found.append((self._takers[_SURE], called))
        return found

    @cached_property
    def _takers(self) -> dict[str, _Taker]:
        """The parameters of functions by the word that calls them; "" stands for an instance."""
        found: dict[str, _Taker] = {}
        for function in self.tree.all(cst.FunctionDef):
            word, owner = function.name.value, self.scopes.scope(function).node
            words = [word, _SURE] if word in _CALLED else [word]
            if word == "__init__" and type(owner) is cst.ClassDef:
                words += self._heirs(owner.name.value)
            bound = int(type(owner) is cst.ClassDef)
            for called in words:
                taker = found.setdefault(called, {})
                parameters = (*function.params.posonly_params, *function.params.params)
                for index, each in enumerate(parameters):
                    for place in range(index - bound, index + 1):
                        taker.setdefault(place, set()).add(each.name.value)
        return found

    def _heirs(self, word: str) -> list[str]:
        """Return the name of a class, and those of the classes that derive from it."""
        found = [word]
        for each in found:
            found += [heir for heir in self._derived.get(each, ()) if heir not in found]
        return found

    @cached_property
    def _derived(self) -> dict[str, list[str]]:
        """The names of the classes that derive from one of a name."""
        found: dict[str, list[str]] = {}
        for owner in self.tree.all(cst.ClassDef):
            for base in owner.bases:
                found.setdefault(last_word(base.value), []).append(owner.name.value)
        return found


def _result(word: str) -> str:
    """Return what stands for the results of calling something of a name."""
    return f"{word}()"


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _reached(flows: list[_Flow], start: set[str]) -> frozenset[str]:
    """Follow the flows that start at some words."""
    onward: dict[str, list[_Flow]] = {}
    for flow in flows:
        onward.setdefault(flow.source, []).append(flow)
        if flow.where != _SURE:
            onward.setdefault(flow.where, []).append(flow)
    found, edge = {*start, _SURE}, [*start]
    while edge:
        for flow in onward.get(edge.pop(), ()):
            if flow.target not in found and flow.source in found and flow.where in found:
                found.add(flow.target)
                edge.append(flow.target)
    return frozenset(found)
