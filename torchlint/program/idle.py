"""Which definitions of a program nothing runs or reads: what is left of earlier attempts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from torchlint.caching import cached_method
from torchlint.program.graph import Graph, Place, spread
from torchlint.program.imports import folder_of
from torchlint.program.outline import LOOKING, LOOKING_UP, Definition, Kind, is_main, is_test
from torchlint.semantic.view import Symbol

_DEFINED: Final = (Kind.FUNCTION, Kind.CLASS)
_INIT: Final = "__init__.py"
_OWN: Final = ("globals", "locals", "eval", "Fire", "sys.modules")
"""Words of code that finds names of its own module."""
_WORD: Final = re.compile(r"\w+")
_OTHERS: Final = ("getattr", "vars", "__dict__")
"""Words of code that finds names of a module that it holds."""


class Idle:
    """Finds definitions that no start of the project reaches; a library's are for its users."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def names(self, path: str) -> frozenset[str]:
        """Return the functions and classes of a module that nothing runs, and unread values."""
        outline = self.graph.outline(path)
        if outline is None or self._may_be_used_unseen(path):
            return frozenset()
        found = frozenset(
            name
            for number, each in enumerate(outline.definitions)
            if not self._is_in_use(Place(path, number), each)
            for name in each.binds
        )
        if found and any(word in self.graph.unread() for word in (*LOOKING, *LOOKING_UP)):
            return frozenset()
        is_handed_on = any(self._may_be_taken(each, set()) for each in outline.definitions if found)
        return frozenset() if is_handed_on else found

    @cached_method
    def _named_unread(self) -> frozenset[str]:
        """Return the words of the modules that do not parse, which may use what they name."""
        return frozenset(_WORD.findall(self.graph.unread()))

    def _may_be_taken(self, definition: Definition, seen: set[Place]) -> bool:
        """Return whether code that runs names something that a module out of sight may hand on."""
        return definition.kind in _DEFINED and any(
            self._is_run(user, seen)
            for name in definition.binds
            for user in self.graph.guessing().get(name, ())
        )

    def _is_in_use(self, place: Place, definition: Definition) -> bool:
        """Return whether something runs a function or class, or reads the value that a line binds.

        Statements that bind several names, or none, may use them themselves.
        """
        if definition.kind in _DEFINED:
            return self._is_run(place, set())
        if definition.kind is not Kind.ASSIGNMENT or len(definition.binds) != 1:
            return True
        symbol = Symbol(place.path, *definition.binds)
        is_used = self._is_handed_on(symbol) or any(True for _ in self._users(symbol))
        return is_used or symbol.name in self._named_unread()

    def _may_be_used_unseen(self, path: str) -> bool:
        """Return whether users of a library, or code that looks names up, may reach a module.

        So may the caller of a module that has to do with no program of the project.
        """
        if is_test(path) or path in self.graph.scripts or self._is_of_library(path):
            return True
        if self.graph.looking_up():
            return True
        if self._is_looked_up(path):
            return True
        if self.graph.importers(path) and not self._is_executed(path):
            return True
        return not any(map(self._is_executed, (path, *sorted(self.graph.edges(path)))))

    def _is_of_library(self, path: str) -> bool:
        """Return whether a module is in a package that is installed."""
        folder = folder_of(path)
        return self.graph.is_installed and self.graph.outline(f"{folder}{_INIT}") is not None

    @cached_method
    def _is_looked_up(self, path: str) -> bool:
        """Return whether a module or one that imports it may take names that it does not spell."""
        return any(self._looks_up(user, path) for user in (path, *self.graph.importers(path)))

    def _looks_up(self, user: str, path: str) -> bool:
        """Return whether a module may take names of another that it does not spell."""
        bound = {
            name
            for name, entries in self.graph.imported(user).items()
            if any(self.graph.target(user, entry) == Symbol(path, "") for entry in entries)
        }
        outline = self.graph.contents(user)
        stars = user == path or bool(outline.stars)
        return any(
            (stars and not each.lookups.isdisjoint(_OWN))
            or (not each.lookups.isdisjoint(_OTHERS) and not bound.isdisjoint(each.uses))
            or (each.kind is not Kind.IMPORT and not bound & each.uses <= _heads(each))
            for each in outline.definitions
        )

    @cached_method
    def _is_executed(self, path: str) -> bool:
        """Return whether a start of the project imports a module, or it is one."""
        return any(map(self._is_started, spread(path, self.graph.importers)))

    def _is_started(self, path: str) -> bool:
        """Return whether a module runs something when it is the main module."""
        outline = self.graph.outline(path)
        runs = is_main(path) or (outline is not None and outline.starts)
        return self.graph.is_start(path) and runs

    def _is_run(self, place: Place, seen: set[Place]) -> bool:
        """Return whether code that runs uses a definition, directly or through others."""
        if place in seen:
            return False
        seen.add(place)
        definition = self.graph.definition(place)
        if definition.kind not in _DEFINED:
            return self._is_executed(place.path)
        if definition.decorated or self._is_looked_up(place.path):
            return True
        if any(
            self._is_handed_on(symbol)
            or any(self._is_run(user, seen) for user in self._users(symbol))
            for symbol in (Symbol(place.path, name) for name in definition.binds)
        ):
            return True
        is_named = not self._named_unread().isdisjoint(definition.binds)
        return is_named or self._may_be_taken(definition, seen)

    def _is_handed_on(self, symbol: Symbol) -> bool:
        """Return whether a symbol is one of those that a module or a package offers to others."""
        exports = self.graph.contents(symbol.path).exports or ()
        return symbol.name in exports or self.graph.is_reexported(symbol)

    def _users(self, symbol: Symbol) -> Iterator[Place]:
        yield from self.graph.users(symbol)
        yield from self.graph.users_at_home(symbol)


def _heads(definition: Definition) -> set[str]:
    """Return the names of which a definition only takes attributes."""
    return {chain.partition(".")[0] for chain in definition.chains}
