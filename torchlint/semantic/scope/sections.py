"""Sections: the parts of a file that have nothing to do with each other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.scope.scopes import How, Scopes
from torchlint.semantic.syntax.section import Section
from torchlint.semantic.syntax.tree import Tree

__all__ = ["sections"]

_DEFINITIONS: Final = (cst.FunctionDef, cst.ClassDef)
_BY_NAME: Final = frozenset("globals locals eval exec".split())
"""Functions that may find a definition by its name at run time."""


def sections(tree: Tree, scopes: Scopes) -> list[Tree]:
    """Return the sections of a file, the one that runs at import first.

    Two definitions are in one section if one names the other, or both name a third. Everything that
    runs at import is in the first, with all that it names. An import belongs to the sections that
    use it, one that none uses to the first.
    """
    body = tree.module.body
    if not any(isinstance(line, _DEFINITIONS) for line in body):
        return [tree]
    if any(tree.spelled(word) for word in _BY_NAME):
        return [tree]
    groups = _Groups(tree, scopes).groups()
    return [Section(tree, lines) for lines in groups] if len(groups) > 1 else [tree]


class _Groups:
    """Groups the top-level statements of a file by the names that they share."""

    def __init__(self, tree: Tree, scopes: Scopes) -> None:
        self.tree = tree
        self.scopes = scopes
        self.body = tree.module.body
        self.starts = [tree.order(line) for line in self.body]
        self.leader = list(range(len(self.body)))
        self.imports = [number for number, line in enumerate(self.body) if _imports(line)]

    def groups(self) -> list[list[cst.CSTNode]]:
        """Return the groups, the one that runs at import first."""
        left = [number for number in range(len(self.body)) if number not in set(self.imports)]
        running = [number for number in left if not isinstance(self.body[number], _DEFINITIONS)]
        for number in running[1:]:
            self._join(running[0], number)
        users = {number: set[int]() for number in self.imports}
        for place, home in self._uses():
            if home in users:
                users[home].add(place)
            else:
                self._join(place, home)
        members: dict[int, list[int]] = {}
        for number in left:
            members.setdefault(self._find(number), []).append(number)
        first = self._find(running[0]) if running else next(iter(members))
        for number, places in users.items():
            for leader in {self._find(place) for place in places} or {first}:
                members[leader].append(number)
        ordered = sorted(members, key=lambda leader: leader != first)
        return [[self.body[number] for number in sorted(members[each])] for each in ordered]

    def _uses(self) -> Iterator[tuple[int, int]]:
        """Yield each top-level statement that names a thing of another, and the other."""
        module = self.scopes.module
        for word, bindings in module.bindings.items():
            homes = {self._number(binding.node) for binding in bindings}
            for home in homes:
                if home in self.imports and all(each.how is How.IMPORT for each in bindings):
                    continue
                for other in homes:
                    yield other, home
            for name in self.tree.spelled(word):
                if self.scopes.lookup(word, self.scopes.scope(name)) is module:
                    for home in homes:
                        yield self._number(name), home

    def _number(self, node: cst.CSTNode) -> int:
        """Return the number of the top-level statement around a node."""
        return bisect_right(self.starts, self.tree.order(node)) - 1

    def _find(self, number: int) -> int:
        while self.leader[number] != number:
            self.leader[number] = number = self.leader[self.leader[number]]
        return number

    def _join(self, one: int, other: int) -> None:
        self.leader[self._find(one)] = self._find(other)


def _imports(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and all(
        isinstance(each, (cst.Import, cst.ImportFrom)) for each in line.body
    )
