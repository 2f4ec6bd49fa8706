"""The graph around one file, found by text search, with few outlines made."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torchlint.caching import cached_method
from torchlint.program.graph import Graph, Place
from torchlint.program.imports import Imports
from torchlint.program.outline import ACCELERATING, LOOKING, MARKS, OPTIMIZING, Outline
from torchlint.program.texts import Texts, stem_of
from torchlint.semantic.view import Symbol


class SearchedGraph(Graph):
    """The graph of a project whose outlines are made when they are asked for.

    It gives the same answers as the graph of the whole project.
    """

    def __init__(
        self,
        imports: Imports,
        texts: Texts,
        outline: Callable[[str], Outline | None],
        scripts: frozenset[str] = frozenset(),
        is_installed: bool = False,
    ) -> None:
        super().__init__(imports, scripts, is_installed)
        self._texts = texts
        self._outline = outline

    def outline(self, path: str) -> Outline | None:
        """Return the outline of a module."""
        return self._outline(path) if path in self._texts.texts else None

    def trains(self, path: str) -> bool:
        """Return whether a module trains a network or loads batches."""
        outline = self.outline(path) if self._texts.has(path, MARKS) else None
        return outline is not None and outline.trains

    def accelerates(self, path: str) -> bool:
        """Return whether a module uses an accelerator."""
        outline = self.outline(path) if self._texts.has(path, ACCELERATING) else None
        return outline is not None and outline.accelerates

    @cached_method
    def looking_up(self) -> list[str]:
        """Return the modules, no tests, that may find others which no import spells, sorted."""
        outlines = [(path, self.outline(path)) for path in self._texts.holding(LOOKING)]
        return sorted(path for path, each in outlines if each and each.looks_modules_up)

    @cached_method
    def has_unread(self) -> bool:
        """Return whether a module, no test, does not parse: it may use anything."""
        return any(self.outline(path) is None for path in self._texts.searched)

    @cached_method
    def optimizes(self) -> bool:
        """Return whether a module, no test, runs a backward pass or a trainer."""
        outlines = map(self.outline, self._texts.holding(OPTIMIZING))
        return any(each is not None and each.optimizes for each in outlines)

    def is_on_accelerator(self, path: str) -> bool:
        """Return whether another module of the programs that a module is in uses an accelerator."""
        return any(self._texts.holding(ACCELERATING)) and super().is_on_accelerator(path)

    @cached_method
    def importers(self, path: str) -> list[str]:
        """Return the modules, no tests, that import from a module."""
        users = set(self._texts.importing(path))
        outline = self.outline(path) or Outline()
        bound = {name for each in outline.definitions for name in each.binds}
        for name in ("", *bound):
            for gate in self.gates(Symbol(path, name)):
                users.update(self._texts.importing_name(*gate))
        return sorted(user for user in users if path in self.edges(user))

    @cached_method
    def users(self, symbol: Symbol) -> list[Place]:
        """Return the definitions outside its module, no tests, that use a symbol."""
        module = Symbol(symbol.path, "")
        users = set(self._texts.spelling(*symbol))
        for gate in (symbol, *self.gates(symbol), *self.gates(module)):
            users.update(self._texts.importing_name(*gate))
        return [
            Place(user, number)
            for user in sorted(users - {symbol.path})
            for number in self.used(user).get(symbol, ())
        ]

    def is_reexported(self, symbol: Symbol) -> bool:
        """Return whether the `__init__.py` of a package imports a symbol."""
        sought = (symbol, Symbol(symbol.path, "*"))
        homes = {symbol.path, *(gate.path for gate in self.gates(symbol))}
        return any(
            not self.reexports(user).isdisjoint(sought)
            for home in homes
            for user in self._texts.importing(home)
            if user.endswith("__init__.py")
        )

    @cached_method
    def gates(self, symbol: Symbol) -> tuple[Symbol, ...]:
        """Return what else in the project stands for a symbol: names that modules import it as."""
        return tuple(self._search_gates(symbol))

    def _search_gates(self, symbol: Symbol) -> Iterator[Symbol]:
        start = symbol if symbol.name else Symbol(symbol.path, stem_of(symbol.path))
        seen = {start}
        edge = [start]
        while edge:
            gate = edge.pop()
            for user in self._texts.importing_name(*gate):
                for name in self._names_for(user, symbol, gate.name):
                    further = Symbol(user, name)
                    if further not in seen:
                        seen.add(further)
                        edge.append(further)
                        yield further

    def _names_for(self, path: str, symbol: Symbol, name: str) -> Iterator[str]:
        """Yield the names that a module imports a symbol as.

        A module under its own name is left out: imports spell that name wherever they take it from.
        """
        outline = self.outline(path) or Outline()
        for entry in outline.imports:
            is_candidate = entry.name == name if symbol.name else entry.bound != name
            if is_candidate and self.export(path, entry.bound) == symbol:
                yield entry.bound
        if outline.stars and self.export(path, name) == symbol:
            yield name
