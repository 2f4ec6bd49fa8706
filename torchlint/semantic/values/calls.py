"""Calls: the calls of a file by the qualified name of what they call, found once per file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import libcst as cst

from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.values.signatures import place
from torchlint.semantic.values.values import Value, Values

_Index = dict[str, list[cst.Call]]


class CallSite:
    """One call and its arguments, as rules query them."""

    def __init__(self, values: Values, node: cst.Call) -> None:
        self.values = values
        self.node = node

    @property
    def name(self) -> str | None:
        """The canonical qualified name of the called function."""
        return self.values.names.name(self.node.func)

    @property
    def method(self) -> str:
        """The name of the called attribute, "" if the call is of a plain name."""
        return method_of(self.node)

    @property
    def receiver(self) -> cst.BaseExpression:
        """The object whose attribute is called; raises `ValueError` if the call has no method."""
        return cst.ensure_type(self.node.func, cst.Attribute).value

    def argument(self, name: str, position: int | None = None) -> Value:
        """Return the value of a parameter, searching `**` dictionaries too.

        `position` is its place among positional arguments where the signature is not known.
        """
        return self.values.argument(self.node, name, self._place(name, position))

    def given(self, name: str, position: int | None = None) -> cst.Arg | None:
        """Return the argument node if the call spells it out."""
        return self.values.argument_node(self.node, name, self._place(name, position))

    def expression(self, name: str, position: int | None = None) -> cst.BaseExpression | None:
        """Return what is passed for a parameter, also in a dictionary that a name holds."""
        return self.values.expression(self.node, name, self._place(name, position))

    def _place(self, name: str, position: int | None) -> int | None:
        return place(self.name, self.method, name) if position is None else position

    @property
    def has_splat(self) -> bool:
        """Whether the call passes on `*args` or `**kwargs`."""
        return any(arg.star for arg in self.node.args)


class Calls:
    """The calls of a file, in source order."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.tree = values.tree
        self.names = values.names

    def of(self, *names: str) -> Iterator[CallSite]:
        """Yield the calls of any of these qualified names."""
        return map(self.at, self._joined(self._by_name, names))

    def at(self, node: cst.Call) -> CallSite:
        """Return the `CallSite` of a call."""
        return CallSite(self.values, node)

    @cached_property
    def called(self) -> tuple[str, ...]:
        """The qualified names of everything the file calls, each once."""
        return tuple(self._by_name)

    def of_methods(self, *methods: str) -> Iterator[CallSite]:
        """Yield the calls of attributes with any of these names, on whatever object."""
        return map(self.at, self._joined(self._by_method, methods))

    def _joined(self, index: _Index, words: tuple[str, ...]) -> list[cst.Call]:
        found = [index[word] for word in dict.fromkeys(words) if word in index]
        if len(found) < 2:
            return found[0] if found else []
        return sorted((call for calls in found for call in calls), key=self.tree.order)

    @cached_property
    def _by_name(self) -> _Index:
        index: _Index = {}
        for call in self.tree.all(cst.Call):
            name = self.names.name(call.func)
            if name is not None:
                index.setdefault(name, []).append(call)
        return index

    @cached_property
    def _by_method(self) -> _Index:
        index: _Index = {}
        for call in self.tree.all(cst.Call):
            method = method_of(call)
            if method:
                index.setdefault(method, []).append(call)
        return index
