"""Instances: which names may hold an instance of a class of this file, judged by spelling."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.calls.annotations import named_types
from torchlint.semantic.scope.names import Names
from torchlint.semantic.scope.scopes import Binding, How, Scopes
from torchlint.semantic.syntax.methods import choices_of, last_word, receiver_of
from torchlint.semantic.syntax.tree import Tree

WRAPPERS: Final = frozenset({
    "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel", "torch.compile",
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
})  # fmt: skip
"""Functions that return the network passed to them."""
SAME: Final = frozenset("to cuda cpu half float double bfloat16 train eval".split())
"""Methods that return their own object."""
PREPARING: Final = frozenset(
    "prepare prepare_model prepare_data_loader prepare_optimizer prepare_scheduler "
    "setup setup_module setup_dataloaders setup_optimizers".split()
)
"""Methods that return all their arguments (`accelerator.prepare(…)`)."""
CONTAINERS: Final = frozenset({
    "torch.nn.ModuleList", "torch.nn.ModuleDict", "torch.nn.Sequential", "builtins.list",
    "builtins.tuple", "builtins.dict", "builtins.enumerate", "builtins.zip", "builtins.reversed",
})  # fmt: skip
"""Functions that return the items of their arguments, or a container of them."""
MEMBERS: Final = frozenset("values items children".split())
"""Methods that return the items of a container."""
ADDING: Final = frozenset("append insert extend update add_module register_module".split())
"""Methods that add their last argument to a container."""
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
        return not self.words.isdisjoint(self._sources(value))

    @cached_property
    def words(self) -> frozenset[str]:
        """All words that may hold an instance, plus `module`: the network inside a wrapper."""
        if not self.tree.all(cst.ClassDef):
            return frozenset()
        flows = [*self._bound(), *self._given(), *self._returned(), *self._registered()]
        flows += self._added()
        sure = (*self._first_parameters(), *self._declared())
        return _reached(flows, {_SURE, "module", *sure})

    @cached_property
    def _classes(self) -> frozenset[str]:
        """The words that may refer to a class in view."""
        named = {binding.name for binding in self.scopes.bindings() if binding.how is How.CLASS}
        return frozenset(named.union(*map(self.holders, named)))

    def holders(self, word: str) -> list[str]:
        """Return the words, itself left out, that may hold the function or class of a word."""
        found = [word]
        for each in found:
            found += [to for to in self._onward.get(each, ()) if to not in found]
        return found[1:]

    @cached_property
    def _onward(self) -> dict[str, dict[str, None]]:
        """The words to which functions and classes with a word may be assigned or passed."""
        found: dict[str, dict[str, None]] = {}
        for binding in self.scopes.bindings():
            for word in self._written(binding.value) if binding.how in _GIVEN else ():
                found.setdefault(word, {})[_last(binding.name)] = None
        for call in self.tree.all(cst.Call):
            taker = self._takers.get(last_word(call.func), {})
            for place, arg in enumerate(call.args):
                named = (arg.keyword.value,) if arg.keyword is not None else taker.get(place, ())
                for word in self._written(arg.value) if named else ():
                    found.setdefault(word, {}).update(dict.fromkeys(named))
        return found

    def _written(self, value: cst.CSTNode | None) -> Iterator[str]:
        """Yield the words of the functions and classes of which a value may be or hold one."""
        if type(value) is cst.Name or type(value) is cst.Attribute:
            yield last_word(value)
        elif type(value) is cst.Subscript:
            yield from self._written(value.value)
        elif type(value) is cst.Dict:
            yield from (word for each in value.elements for word in self._written(each.value))
        elif choices := choices_of(value) if value is not None else ():
            yield from (word for each in choices for word in self._written(each))
        elif type(value) is cst.Call and value.args:
            if self.names.is_partial(value):
                yield from self._written(value.args[0].value)
            elif (table := receiver_of(value, "get")) is not None:
                for each in (table, *(arg.value for arg in value.args[1:])):
                    yield from self._written(each)

    # -- values --------------------------------------------------------

    def _sources(self, value: cst.CSTNode | None) -> Iterator[str]:
        """Yield the words of which one must hold an instance for a value to be or hold one."""
        if type(value) is cst.Name:
            yield value.value
        elif type(value) is cst.Attribute:
            if value.attr.value == "module":
                yield from self._sources(value.value)
            else:
                yield value.attr.value
        elif type(value) is cst.Call:
            yield from self._made(value)
        elif type(value) is cst.Subscript:
            yield from self._sources(value.value)
        elif value is not None:
            for each in parts_of(value):
                yield from self._sources(each)

    def _made(self, call: cst.Call) -> Iterator[str]:
        func = call.func
        if not self._classes.isdisjoint(self._written(func)):
            yield _SURE
            return
        if type(func) is cst.Attribute and func.attr.value in (*SAME, *MEMBERS):
            yield from self._sources(func.value)
        name = self.names.name(func)
        if name in WRAPPERS or name in CONTAINERS:
            for arg in call.args:
                yield from self._sources(arg.value)
        elif name == "builtins.super":
            yield _SURE
        held = func.value if type(func) is cst.Subscript else None
        yield _result(last_word(held) if held is not None else last_word(func))

    # -- flows ---------------------------------------------------

    def _first_parameters(self) -> Iterator[str]:
        """Yield the first parameters of methods, which hold the instance."""
        for function in self.tree.all(cst.FunctionDef):
            if self.scopes.scope(function).is_class:
                parameters = (*function.params.posonly_params, *function.params.params)
                yield from (first.name.value for first in parameters[:1])

    def _declared(self) -> Iterator[str]:
        """Yield the parameters that are declared to be an instance of a class in view."""
        for parameter in self.tree.all(cst.Param):
            if parameter.annotation is not None:
                for each in named_types(parameter.annotation.annotation):
                    if not self._classes.isdisjoint(self._written(each)):
                        yield parameter.name.value

    def _bound(self) -> Iterator[_Flow]:
        """Yield the flows through assignments and parameter defaults."""
        for binding in self.scopes.bindings():
            for source in self._sources(self._bound_value(binding)):
                yield _Flow(source, _last(binding.name))

    def _added(self) -> Iterator[_Flow]:
        """Yield the flows from what is added to a container to the container."""
        for word, additions in self.additions.items():
            for _, value in additions:
                for source in self._sources(value):
                    yield _Flow(source, word)

    @cached_property
    def additions(self) -> dict[str, list[tuple[cst.BaseExpression, cst.BaseExpression]]]:
        """The containers and what is added to each after it was made, by its last word."""
        found: dict[str, list[tuple[cst.BaseExpression, cst.BaseExpression]]] = {}
        for call in self.tree.all(cst.Call):
            held = receiver_of(call, *ADDING)
            if held is not None and call.args:
                found.setdefault(last_word(held), []).append((held, call.args[-1].value))
        for line in self.tree.all(cst.Assign):
            for each in line.targets:
                if type(each.target) is cst.Subscript:
                    held = each.target.value
                    found.setdefault(last_word(held), []).append((held, line.value))
        return found

    def _returned(self) -> Iterator[_Flow]:
        """Yield the flows from what functions return, alone or in a tuple, to their calls."""
        for line in self.tree.all(cst.Return):
            function = self.scopes.function(line)
            if function is not None:
                for source in self._sources(line.value):
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
        if binding.how in _GIVEN or binding.how is How.LOOP:
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
            partial = self.names.is_partial(call)
            takers = self._taking(call, partial)
            place = -1 if partial else 0
            for arg in call.args:
                if arg.keyword is not None:
                    for source in self._sources(arg.value):
                        yield _Flow(source, arg.keyword.value)
                    continue
                for source in self._sources(arg.value) if takers else ():
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
        if _SURE in self._takers:
            found += ((self._takers[_SURE], called) for called in self._sources(call.func))
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


def parts_of(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Yield what an expression chooses from, or the items that it puts into a container."""
    yield from choices_of(node)
    if isinstance(node, (cst.List, cst.Tuple, cst.Dict)):
        yield from (each.value for each in node.elements)
    elif isinstance(node, (cst.ListComp, cst.GeneratorExp)):
        yield node.elt
    elif isinstance(node, cst.DictComp):
        yield node.value
    elif isinstance(node, cst.BinaryOperation) and isinstance(
        node.operator, (cst.Add, cst.Multiply)
    ):
        yield from (node.left, node.right)


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
