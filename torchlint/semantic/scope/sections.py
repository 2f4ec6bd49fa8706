"""Sections: the parts of a file that have something to do with each other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Final

import libcst as cst

from torchlint.semantic.scope.bindings import Binding, How, Scope
from torchlint.semantic.scope.names import Names
from torchlint.semantic.scope.outside import Outside
from torchlint.semantic.syntax.methods import last_word, word_of
from torchlint.semantic.syntax.tree import Section, Tree

_DEFINITIONS: Final = (cst.FunctionDef, cst.ClassDef)
_BY_NAME: Final = frozenset("globals locals eval exec".split())
"""Functions that may find a definition by its name at run time."""
_OF_FUNCTION: Final = "locals"
"""The one of them that finds only what a function binds, if one calls it."""
_OF_TEXT: Final = "eval"
"""The one of them that mostly reads a value that a user writes: a list, a number."""

_KNOWN: Final = ("torch.", "builtins.", "functools.", "dataclasses.", "contextlib.", "typing.")
"""The beginnings of the names of decorators that keep no definition."""


class Sections:
    """Relates the top-level statements in view by the names that they share.

    Those of linked modules, too: an import of a name that is in view joins its users to it.
    """

    def __init__(self, tree: Tree, names: Names) -> None:
        self.tree = tree
        self.names = names
        self.scopes = names.scopes
        self.body = tree.body
        self.starts = [tree.order(line) for line in self.body]
        self.imports = [number for number, line in enumerate(self.body) if _imports(line)]

    def all(self) -> list[Tree]:
        """Return the sections with statements of the file, the one that runs at import first.

        Two definitions are in one section if one names the other, or both name a third. Everything
        that runs at import is in the first, with all that it names or that decorators register. An
        import belongs to the sections that use it, one that none uses to the first.
        """
        if not any(isinstance(line, _DEFINITIONS) for line in self.body):
            return [self.tree]
        first, *others = self._groups()
        if not others:
            return [self.tree]
        groups = (
            first,
            *(each for each in others if any(self.tree.is_own(self.body[at]) for at in each)),
        )
        return [self._section(numbers) for numbers in groups]

    def around(self, node: cst.CSTNode, apart: Iterable[cst.CSTNode]) -> Tree | None:
        """Return what has to do with a node, None if nothing else is in the file.

        That is the code that leads to it, and all that this code names, but neither the definitions
        around the nodes `apart`, unless they lead there as well, nor what is only handed to those,
        nor functions that are only called with things of their own.
        """
        home = self._number(node)
        leading = self._closure([home], self._users, ())
        running = {*leading, *self._executed}
        functions = [[self.body[number]] for number in sorted(leading - {*self._executed})]
        outside = Outside(self.scopes, [*functions, [self.body[each] for each in self._executed]])
        shut = {self._number(each) for each in apart} - leading
        shut |= {each for each in self._called_from(running) if self._is_run_apart(outside, each)}
        lines = self._definitions(shut)
        if not lines:
            return None
        named = frozenset(each.name.value for each in lines)
        around = self.body[home]
        left = [line for line in outside.lines(named) if not self.tree.inside(line, around)]
        kept = {home}
        found = {*self._named.get(home, ()), *self._homes_in(left)} - shut
        kept |= self._closure(found - leading, self._named, shut) - running
        for number, users in self._importers.items():
            if not users or users & (kept | running):
                kept.add(number)
        return Section(
            self.tree, sorted([*(self.body[each] for each in kept), *left], key=self.tree.order)
        )

    def _definitions(self, numbers: Iterable[int]) -> list[cst.FunctionDef | cst.ClassDef]:
        lines = (self.body[number] for number in numbers)
        return [line for line in lines if isinstance(line, _DEFINITIONS)]

    def _called_from(self, running: set[int]) -> list[int]:
        """Return the statements that are named by some others alone."""
        return [
            number
            for number, users in self._users.items()
            if number not in running and users - {number} and users <= {*running, number}
        ]

    def _is_run_apart(self, outside: Outside, number: int) -> bool:
        line = self.body[number]
        return isinstance(line, cst.FunctionDef) and outside.is_run_apart(line)

    def _homes_in(self, lines: Iterable[cst.CSTNode]) -> Iterator[int]:
        """Yield the top-level statements that some lines name."""
        for line in lines:
            for name in self.tree.within(line, cst.Name):
                scope = self.scopes.lookup(name.value, self.scopes.scope(name))
                if scope is not None and isinstance(scope.node, cst.Module):
                    yield from (self._number(each.node) for each in scope.bindings[name.value])

    def _finds_definitions(self, name: cst.Name) -> bool:
        """Return whether a function may find a definition of its module by its name here."""
        if self.scopes.lookup(name.value, self.scopes.scope(name)) is not None:
            return False
        if name.value == _OF_FUNCTION:
            return self.scopes.function(name) is None
        return name.value != _OF_TEXT or not self._reads_value(self.tree.parent(name))

    def _reads_value(self, call: cst.CSTNode | None) -> bool:
        """Return whether a call of `eval` gives a name, or a loop, what nothing calls."""
        user = self.tree.parent(call) if isinstance(call, cst.Call) else None
        if isinstance(user, cst.Assign):
            targets = [each.target for each in user.targets]
        elif isinstance(user, (cst.For, cst.CompFor)):
            targets = [user.target]
        else:
            return False
        words = {last_word(each) for each in targets if isinstance(each, (cst.Attribute, cst.Name))}
        return len(words) == len(targets) and words.isdisjoint(self._called)

    @cached_property
    def _called(self) -> frozenset[str]:
        """The last words of what the file calls."""
        return frozenset(map(word_of, self.tree.all(cst.Call)))

    def _section(self, numbers: Iterable[int]) -> Tree:
        return Section(self.tree, [self.body[number] for number in sorted(numbers)])

    def home(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the top-level statement around a node."""
        return self.body[self._number(node)]

    def _number(self, node: cst.CSTNode) -> int:
        """Return the number of the top-level statement around a node."""
        return bisect_right(self.starts, self.tree.order(node)) - 1

    # -- names ----------------------------------------------------------------

    @cached_property
    def _executed(self) -> list[int]:
        """The statements that run at import, imports left out."""
        return [
            number
            for number, line in enumerate(self.body)
            if not isinstance(line, _DEFINITIONS) and number not in self.imports
        ]

    @cached_property
    def _registered(self) -> list[int]:
        """The definitions that a decorator may hand to what runs: `@register("net")`."""
        return [number for number, line in enumerate(self.body) if self._is_registered(line)]

    def _is_registered(self, line: cst.CSTNode) -> bool:
        if not isinstance(line, _DEFINITIONS):
            return False
        calls = (each.decorator for each in line.decorators if type(each.decorator) is cst.Call)
        return any(not (self.names.name(each.func) or "").startswith(_KNOWN) for each in calls)

    @cached_property
    def _uses(self) -> tuple[tuple[int, int], ...]:
        """Each top-level statement that names a thing of another, and the other."""
        return tuple(self._find_uses())

    def _find_uses(self) -> Iterator[tuple[int, int]]:
        for scope in self.scopes.opened():
            if isinstance(scope.node, cst.Module):
                yield from self._uses_of_module(scope)
            else:
                yield from self._uses_of_imports(scope)
        for node in self.tree.all(cst.Attribute) if self.tree.texts else ():
            place = self._number(node)
            yield from ((place, home) for home in self._homes(self.names.linked(node)))
        for name in (name for word in _BY_NAME for name in self.tree.spelled(word)):
            if self._finds_definitions(name):
                place = self._number(name)
                yield from ((place, home) for home in self._found_from(name))

    def _found_from(self, name: cst.Name) -> Iterable[int]:
        """Return the statements that make what the module of a name binds; all for a star."""
        if self.scopes.stars(name):
            return range(len(self.body))
        return self._homes(chain.from_iterable(self.scopes.module_scope(name).bindings.values()))

    def _uses_of_module(self, module: Scope) -> Iterator[tuple[int, int]]:
        for word, bindings in module.bindings.items():
            homes = self._homes(bindings)
            if all(each.how is How.IMPORT for each in bindings):
                homes.difference_update(self.imports)
            for home in homes:
                yield from ((other, home) for other in homes)
            for name in self.tree.spelled(word) if homes else ():
                if self.scopes.lookup(word, self.scopes.scope(name)) is module:
                    place = self._number(name)
                    yield from ((place, home) for home in homes)

    def _uses_of_imports(self, scope: Scope) -> Iterator[tuple[int, int]]:
        """Yield what a function or a class imports from a module in view, and where it stands."""
        place = self._number(scope.node)
        for word in scope.unlinked:
            yield from ((place, home) for home in self._homes(scope.bindings[word]))

    def _homes(self, bindings: Iterable[Binding]) -> set[int]:
        """Return the top-level statements that make some bindings."""
        return {self._number(binding.node) for binding in bindings}

    @cached_property
    def _named(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for place, home in self._uses:
            found.setdefault(place, set()).add(home)
        return found

    @cached_property
    def _users(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for place, home in self._uses:
            found.setdefault(home, set()).add(place)
        return found

    def _closure(
        self, starts: Iterable[int], edges: dict[int, set[int]], shut: Iterable[int]
    ) -> set[int]:
        found = set(starts)
        left = list(found)
        while left:
            fresh = edges.get(left.pop(), set()) - found - set(shut)
            found |= fresh
            left += fresh
        return found

    # -- groups ----------------------------------------------------------------

    def _groups(self) -> list[set[int]]:
        """Return the groups of statements that names join, the one that runs at import first."""
        either = {number: set[int]() for number in range(len(self.body))}
        for place, home in self._uses:
            either[place].add(home)
            either[home].add(place)
        for number in (*self._executed[1:], *self._registered) if self._executed else ():
            either[self._executed[0]].add(number)
            either[number].add(self._executed[0])
        groups: list[set[int]] = []
        group_of: dict[int, set[int]] = {}
        left = [number for number in range(len(self.body)) if number not in self.imports]
        for number in [*self._executed[:1], *left]:
            if number not in group_of:
                groups.append(self._closure([number], either, ()))
                group_of.update(dict.fromkeys(groups[-1], groups[-1]))
        for number, users in self._importers.items():
            for group in [group_of[each] for each in users] or groups[:1]:
                group.add(number)
        return groups

    @cached_property
    def _importers(self) -> dict[int, set[int]]:
        """The statements that read a name that each import binds, by its number."""
        found = {number: set[int]() for number in self.imports}
        for scope in self.scopes.modules:
            for word, bindings in {**scope.bindings, **scope.unlinked}.items():
                spelled = self.tree.among(self.tree.spelled(word), scope.node)
                users = set(map(self._number, spelled))
                for home in self._homes(bindings) & found.keys():
                    found[home] |= users
        return {number: users - found.keys() for number, users in found.items()}


def _imports(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and all(
        isinstance(each, (cst.Import, cst.ImportFrom)) for each in line.body
    )
