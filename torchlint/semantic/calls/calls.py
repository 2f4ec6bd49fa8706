"""Calls: the calls of a file by the qualified name of what they call, found once per file."""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from torchlint.semantic.scope.names import Names
from torchlint.semantic.syntax.tree import Tree

__all__ = ["Calls"]

_Index = dict[str, list[cst.Call]]


class Calls:
    """The calls of a file, in source order."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self.tree = tree
        self.names = names

    def of(self, names: tuple[str, ...]) -> list[cst.Call]:
        """Return the calls of any of these qualified names."""
        return self._joined(self._by_name, names)

    @cached_property
    def called(self) -> tuple[str, ...]:
        """The qualified names of everything the file calls, each once."""
        return tuple(self._by_name)

    def of_methods(self, methods: tuple[str, ...]) -> list[cst.Call]:
        """Return the calls of attributes with any of these names, on whatever object."""
        return self._joined(self._by_method, methods)

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
            if type(call.func) is cst.Attribute:
                index.setdefault(call.func.attr.value, []).append(call)
        return index
