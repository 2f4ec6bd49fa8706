"""Which definitions use which symbols of a project, and which modules are parts of programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

from torchlint.caching import cached_method
from torchlint.program.imports import Imports
from torchlint.program.outline import (
    LOOKING,
    OPTIMIZING,
    Definition,
    Import,
    Kind,
    Outline,
    Star,
    is_main,
    is_test,
)
from torchlint.semantic.view import Symbol

_FINDING: Final = frozenset({"import_module", "importlib.import_module"})
"""What code names that imports a module by a name that it makes up or reads."""
_MOST_STEPS: Final = 6
"""How many re-exports of a name are followed."""


class Place(NamedTuple):
    """One definition: its module, and its number in the outline."""

    path: str
    number: int


class Links(NamedTuple):
    """The symbols of other modules, and of its own, that one definition uses.

    `names` has the qualified name as written, None for one that the project does not define
    although its module is of the project. `stars` are words bound by star imports.
    """

    names: dict[str, Symbol | None]
    stars: dict[str, Symbol]
    own: tuple[Symbol, ...]

    def symbols(self) -> Iterator[Symbol]:
        """Yield the symbols, those of the module itself first."""
        yield from self.own
        yield from (symbol for symbol in self.names.values() if symbol is not None)
        yield from self.stars.values()


Node = TypeVar("Node", str, Symbol)


def spread(start: Node, following: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """Yield a module or symbol and what leads on from it, the nearest first."""
    seen, edge = {start}, [start]
    while edge:
        yield (at := edge.pop(0))
        new = [each for each in dict.fromkeys(following(at)) if each not in seen]
        seen.update(new)
        edge += new


class Graph(ABC):
    """The modules of a project and what they use of each other.

    A `Symbol` without a name stands for the module itself.
    """

    def __init__(
        self, imports: Imports, scripts: frozenset[str] = frozenset(), is_installed: bool = False
    ) -> None:
        self.imports = imports
        self.scripts = scripts
        """The modules that `pyproject.toml` names as scripts."""
        self.is_installed = is_installed
        """Whether the project is made to be installed, for others to import."""
        self._in_program: dict[str, bool] = {}
        self._trains_below: dict[str, bool] = {}

    # -- what is known of the project and of each module --------------------------

    @abstractmethod
    def sources(self, *marks: str) -> Iterable[str]:
        """Return the modules, no tests, sorted: those whose text may hold one of some marks."""

    @abstractmethod
    def text(self, path: str) -> str:
        """Return the text of a module."""

    @cached_method
    def looking_up(self) -> list[str]:
        """Return the modules, no tests, that may find others which no import spells, sorted."""
        return [path for path in self.sources(*LOOKING) if self.contents(path).looks_modules_up]

    @cached_method
    def unread(self) -> str:
        """Return the text of all modules, no tests, that do not parse."""
        return "\n".join(self.text(path) for path in self.sources() if not self.outline(path))

    @cached_method
    def optimizes(self) -> bool:
        """Return whether a module, no test, runs a backward pass or a trainer."""
        return any(self.contents(path).optimizes for path in self.sources(*OPTIMIZING))

    @abstractmethod
    def outline(self, path: str) -> Outline | None:
        """Return the outline of a module, None if it is not of the project or does not parse."""

    def contents(self, path: str) -> Outline:
        """Return the outline of a module, an empty one where there is none."""
        return self.outline(path) or Outline()

    def trains(self, path: str) -> bool:
        """Return whether a module trains a network or loads batches."""
        return self.contents(path).trains

    def accelerates(self, path: str) -> bool:
        """Return whether a module uses an accelerator."""
        return self.contents(path).accelerates

    @abstractmethod
    def importers(self, path: str) -> list[str]:
        """Return the modules, no tests, that import from a module, sorted."""

    @abstractmethod
    def users(self, symbol: Symbol) -> list[Place]:
        """Return the definitions outside its module, no tests, that use a symbol, sorted."""

    @abstractmethod
    def is_reexported(self, symbol: Symbol) -> bool:
        """Return whether the `__init__.py` of a package imports a symbol."""

    def users_at_home(self, symbol: Symbol) -> Iterator[Place]:
        """Yield the definitions of a symbol's own module that use it."""
        for number, each in enumerate(self.contents(symbol.path).definitions):
            if symbol.name in each.uses and symbol.name not in each.binds:
                if each.kind is not Kind.IMPORT:
                    yield Place(symbol.path, number)

    def finders(self, path: str) -> Iterator[Place]:
        """Yield the functions and classes that may find a module which no import spells."""
        if not self.importers(path) and not self.is_start(path):
            yield from (place for place in self._finding() if place.path != path)

    @cached_method
    def _finding(self) -> list[Place]:
        return [
            Place(user, number)
            for user in self.looking_up()
            for number, each in enumerate(self.contents(user).definitions)
            if each.kind in (Kind.FUNCTION, Kind.CLASS)
            and not _FINDING.isdisjoint((*each.uses, *each.chains))
        ]

    @cached_method
    def definitions(self, symbol: Symbol) -> list[Place]:
        """Return the statements that bind a symbol; imports only if there is nothing else."""
        numbers = self.numbers(symbol.path).get(symbol.name, ())
        places = [Place(symbol.path, number) for number in numbers]
        rest = [each for each in places if self.definition(each).kind is not Kind.IMPORT]
        return rest or places

    def definition(self, place: Place) -> Definition:
        """Return the definition at a place."""
        outline = self.outline(place.path)
        assert outline is not None
        return outline.definitions[place.number]

    @cached_method
    def heads(self, path: str) -> list[Place]:
        """Return the import statements at the top level of a module."""
        return [
            Place(path, number)
            for number, each in enumerate(self.contents(path).definitions)
            if each.kind is Kind.IMPORT
        ]

    @cached_method
    def numbers(self, path: str) -> dict[str, tuple[int, ...]]:
        """Return the numbers of the definitions that bind each name of a module."""
        bound: dict[str, list[int]] = {}
        for number, definition in enumerate(self.contents(path).definitions):
            for name in definition.binds:
                bound.setdefault(name, []).append(number)
        return {name: tuple(numbers) for name, numbers in bound.items()}

    @cached_method
    def imported(self, path: str) -> dict[str, list[Import]]:
        """Return the imports at the top level of a module, by the name that they bind."""
        found: dict[str, list[Import]] = {}
        for entry in self.contents(path).imports:
            found.setdefault(entry.bound, []).append(entry)
        return found

    # -- what a name stands for ---------------------------------------------------

    def target(self, path: str, entry: Import, steps: int = _MOST_STEPS) -> Symbol | None:
        """Return the symbol that the name of an import stands for, None if not of the project."""
        module = entry.module
        if entry.name is None and "." in entry.local:
            module = entry.bound
        home = self.imports.module(path, entry.level, module)
        if home is None:
            return None
        if entry.name is None:
            return Symbol(home.path, "")
        return self.export(home.path, entry.name, steps)

    @cached_method
    def export(self, home: str, name: str, steps: int = _MOST_STEPS) -> Symbol | None:
        """Return the symbol that a name of a module stands for; tests hand nothing on."""
        if not steps:
            return None
        return self._export(Symbol(home, name), steps)

    def _export(self, key: Symbol, steps: int) -> Symbol | None:
        home, name = key
        places = self.definitions(key)
        if places and self.definition(places[0]).kind is not Kind.IMPORT:
            return key
        hands_on = not is_test(home)
        for entry in self.imported(home).get(name, ()) if hands_on else ():
            found = self.target(home, entry, steps - 1)
            if found is not None and found != key:
                return found
        inner = self.imports.submodule(home, name)
        if inner is not None:
            return Symbol(inner, "")
        if places:
            return key
        for star in reversed(self.contents(home).stars if hands_on else ()):
            found = self._through(home, star, name, steps - 1)
            if found is not None:
                return found
        return None

    def _through(self, path: str, star: Star, name: str, steps: int) -> Symbol | None:
        """Return the symbol that a star import binds to a name."""
        module = self.imports.module(path, star.level, star.module)
        outline = self.outline(module.path) if module is not None else None
        if module is None or outline is None:
            return None
        if name.startswith("_") if outline.exports is None else name not in outline.exports:
            return None
        return self.export(module.path, name, steps)

    # -- what a definition uses ---------------------------------------------------

    @cached_method
    def links(self, place: Place) -> Links:
        """Return what a definition uses of the project."""
        path = place.path
        outline = self.contents(path)
        definition = outline.definitions[place.number]
        imported = self.imported(path)
        own = self.numbers(path)
        names: dict[str, Symbol | None] = {}
        stars: dict[str, Symbol] = {}
        entries = [each for word in definition.uses for each in imported.get(word, ())]
        for entry in (*entries, *definition.imports):
            names.update(self._spelled(path, entry, definition.chains))
        words = [word for word in definition.uses if word not in imported]
        if outline.stars:
            unknown = [word for word in words if word not in own]
            for star in reversed(outline.stars):
                for word in unknown:
                    symbol = self._through(path, star, word, _MOST_STEPS - 1)
                    if symbol is not None and symbol.name:
                        stars.setdefault(word, symbol)
        used = (word for word in words if word in own and word not in definition.binds)
        return Links(
            dict(sorted(names.items())),
            dict(sorted(stars.items())),
            tuple(sorted(Symbol(path, word) for word in used)),
        )

    def _spelled(
        self, path: str, entry: Import, chains: Iterable[str]
    ) -> Iterator[tuple[str, Symbol | None]]:
        """Yield the qualified names as written that begin with an import, and their symbols."""
        module = self.imports.module(path, entry.level, entry.module)
        if module is None:
            if entry.level:
                yield entry.qualified, None
            return
        target = self.target(path, entry)
        if target is None:
            if not module.path.endswith("/") and module.is_sure:
                yield entry.qualified, None
        elif target.name:
            yield entry.qualified, target
        else:
            for each in chains:
                head, *rest = each.split(".")
                if head == entry.bound:
                    yield from self._chain(entry.qualified, target, rest)

    def _chain(
        self, spelled: str, target: Symbol, rest: list[str]
    ) -> Iterator[tuple[str, Symbol | None]]:
        """Yield the symbol that attributes of a module lead to."""
        at: Symbol | None = target
        for word in rest:
            if at is None or at.name:
                break
            spelled = f"{spelled}.{word}"
            at = self.export(at.path, word)
        if at is None or at.name:
            yield spelled, at

    @cached_method
    def used(self, path: str) -> dict[Symbol, list[int]]:
        """Return the symbols of other modules that a module uses, and in which definitions."""
        found: dict[Symbol, list[int]] = {}
        for number, definition in enumerate(self.contents(path).definitions):
            if definition.kind is not Kind.IMPORT:
                for symbol in dict.fromkeys(self.links(Place(path, number)).symbols()):
                    if symbol.path != path:
                        found.setdefault(symbol, []).append(number)
        return found

    @cached_method
    def guessing(self) -> dict[str, list[Place]]:
        """Return the definitions, no tests, that use each name of a module that is not here."""
        found: dict[str, list[Place]] = {}
        for path in self.sources():
            for number in range(len(self.contents(path).definitions)):
                for name in self._unseen(Place(path, number)):
                    found.setdefault(name, []).append(Place(path, number))
        return found

    def _unseen(self, place: Place) -> Iterator[str]:
        """Yield the names in a definition that a module which is not here may bind."""
        path, links = place.path, self.links(place)
        yield from (name.rpartition(".")[2] for name, to in links.names.items() if to is None)
        if self._is_open(path):
            known = (self.imported(path), self.numbers(path), links.stars)
            words = sorted(self.definition(place).uses)
            yield from (word for word in words if not any(word in names for names in known))

    @cached_method
    def _is_open(self, path: str, steps: int = _MOST_STEPS) -> bool:
        """Return whether a star import takes names of a module that is not here."""
        for star in self.contents(path).stars:
            home = self.imports.module(path, star.level, star.module)
            if home is None and (star.level or not self.imports.is_foreign(star.module)):
                return True
            if home is not None and steps and self._is_open(home.path, steps - 1):
                return True
        return False

    # -- modules that import each other -------------------------------------------

    def reached(self, path: str) -> Iterator[str]:
        """Yield the modules that a module reaches by imports, the nearest first, without tests."""
        found = spread(
            path, lambda at: sorted(each for each in self.edges(at) if not is_test(each))
        )
        return islice(found, 1, None)

    @cached_method
    def edges(self, path: str) -> frozenset[str]:
        """Return the modules from which a module imports, at any place."""
        return frozenset(self._imported_modules(path)) - {path}

    def _imported_modules(self, path: str) -> Iterator[str]:
        outline = self.contents(path)
        nested = (entry for each in outline.definitions for entry in each.imports)
        for entry in (*outline.imports, *nested):
            if entry.name is None:
                home = self.imports.module(path, 0, entry.module)
                if home is not None:
                    yield home.path
            else:
                target = self.target(path, entry)
                if target is not None:
                    yield target.path
        for star in outline.stars:
            home = self.imports.module(path, star.level, star.module)
            if home is not None:
                yield home.path

    def reexports(self, path: str) -> frozenset[Symbol]:
        """Return the symbols of other modules that the `__init__.py` of a package imports.

        A star import counts as the symbol `*` of its module.
        """
        if not path.endswith("__init__.py"):
            return frozenset()
        outline = self.contents(path)
        found = {self.target(path, entry) for entry in outline.imports}
        homes = (self.imports.module(path, star.level, star.module) for star in outline.stars)
        stars = {Symbol(home.path, "*") for home in homes if home is not None}
        symbols = {each for each in found if each is not None} | stars
        return frozenset(each for each in symbols if each.path != path)

    # -- programs -----------------------------------------------------------------

    def is_in_program(self, path: str) -> bool:
        """Return whether a start reaches a module by imports, and something that trains.

        A module without importers may be a start as well: of a notebook, or of a command.
        """
        found = self._in_program.get(path)
        if found is None:
            found = self._in_program[path] = self._reached(path)
        return found

    def _reached(self, path: str) -> bool:
        if is_test(path):
            return False
        seen = []
        for at in self._above(path):
            seen.append(at)
            if self._in_program.get(at) or (self._begins(at) and self.trains_below(at)):
                return True
        self._in_program.update(dict.fromkeys(seen, False))
        return False

    def is_on_accelerator(self, path: str) -> bool:
        """Return whether another module of the programs that a module is in uses an accelerator."""
        above = list(self._above(path))
        starts = filter(self._begins, above)
        below = (each for at in starts for each in self.reached(at) if self._lends(each, at))
        others = (each for each in chain(above, below) if each != path)
        return any(map(self.accelerates, others))

    def _lends(self, path: str, start: str) -> bool:
        """Return whether a start that reaches a module runs on its devices.

        A start of its own trains for itself, unless the other one takes a training from it.
        """
        taken = (symbol for symbol in self.used(start) if symbol.path == path)
        return not self.is_start(path) or any(
            self.definition(place).trains for each in taken for place in self.definitions(each)
        )

    def _begins(self, path: str) -> bool:
        return self.is_start(path) or not self._leading_to(path)

    def _above(self, path: str) -> Iterator[str]:
        """Yield a module and those that reach it by imports or by its name, the nearest first."""
        return spread(path, self._leading_to)

    @cached_method
    def _leading_to(self, path: str) -> list[str]:
        return self.importers(path) or [place.path for place in self.finders(path)]

    def is_start(self, path: str) -> bool:
        """Return whether a module is run as the main module."""
        if is_test(path):
            return False
        if is_main(path) or path in self.scripts:
            return True
        outline = self.outline(path)
        if outline is None:
            return False
        return outline.starts or (outline.trains and not self.importers(path))

    def trains_below(self, path: str) -> bool:
        """Return whether a module, or one that it reaches by imports, trains or loads."""
        known, seen = self._trains_below, []
        for at in spread(path, lambda at: () if at in known else sorted(self.edges(at))):
            seen.append(at)
            if known.get(at) or (at not in known and self.trains(at)):
                known[path] = True
                return True
        known.update(dict.fromkeys(seen, False))
        return False


class WholeGraph(Graph):
    """The graph of a project of which all outlines are known."""

    def __init__(
        self,
        imports: Imports,
        outlines: dict[str, Outline | None],
        text: Callable[[str], str],
        scripts: frozenset[str] = frozenset(),
        is_installed: bool = False,
    ) -> None:
        super().__init__(imports, scripts, is_installed)
        self._outlines = outlines
        self._text = text

    def outline(self, path: str) -> Outline | None:
        """Return the outline of a module."""
        return self._outlines.get(path)

    def text(self, path: str) -> str:
        """Return the text of a module."""
        return self._text(path)

    def prepare(self) -> None:
        """Find out who uses what, for processes that are forked later, too."""
        for found in (self._users, self._importers, self._reexported):
            len(found)

    def importers(self, path: str) -> list[str]:
        """Return the modules, no tests, that import from a module."""
        return self._importers.get(path, [])

    def users(self, symbol: Symbol) -> list[Place]:
        """Return the definitions outside its module, no tests, that use a symbol."""
        return self._users.get(symbol, [])

    def is_reexported(self, symbol: Symbol) -> bool:
        """Return whether the `__init__.py` of a package imports a symbol."""
        return not self._reexported.isdisjoint((symbol, Symbol(symbol.path, "*")))

    @cached_property
    def _importers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for user in self.sources():
            for home in self.edges(user):
                found.setdefault(home, []).append(user)
        return found

    @cached_property
    def _users(self) -> dict[Symbol, list[Place]]:
        found: dict[Symbol, list[Place]] = {}
        for user in self.sources():
            for symbol, numbers in self.used(user).items():
                found.setdefault(symbol, []).extend(Place(user, number) for number in numbers)
        return found

    @cached_property
    def _reexported(self) -> frozenset[Symbol]:
        return frozenset[Symbol]().union(*map(self.reexports, self.sources()))

    def sources(self, *marks: str) -> Iterable[str]:
        """Return the modules, no tests, sorted."""
        return (path for path in sorted(self._outlines) if not is_test(path))
