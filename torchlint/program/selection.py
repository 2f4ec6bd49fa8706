"""Choosing the definitions of other modules with which a file is analyzed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import chain, pairwise
from typing import Final

from torchlint.program.graph import Graph, Links, Place
from torchlint.program.idle import Idle
from torchlint.program.outline import Definition, Kind, Outline, is_test
from torchlint.semantic.view import ALONE, Excerpt, LinkedModule, Symbol, View

Lines = Callable[[str, int, int], str]
"""A function that returns the lines of a file from a first to a last row."""

MOST_CHARACTERS: Final = 16_000
"""The characters of all excerpts of a view."""

_MOST_OF_USED: Final = 4_000
"""The characters for what the file uses where callers have taken all."""
_LONG_CALLER: Final = 8_000
_LONG_CLASS: Final = 12_000
_LONGEST_CALLER: Final = 32_000
"""From and up to how many characters callers have room of their own: a long `main()`."""
_MOST_OF_USERS: Final = 4_000
"""The characters of one excerpt that uses those of the file, if a class or without tensors."""
_MOST_OF_HEIRS: Final = 12_000
"""The characters of a class that derives from one of the file."""
_SHORT: Final = 600
"""A definition of so few characters is linked early, whatever it does."""
_MOST_USERS: Final = 12
"""A symbol with more users is that of a library: only callers that compile are linked."""
_MOST_OF_SETTINGS: Final = 1_000
"""The characters of statements that set something for the whole process."""
_COMPILE: Final = "torch.compile"
_RUNS: Final = (_COMPILE, "torch.no_grad", "torch.inference_mode")
"""Of definitions that name one of these, at least some run a network."""
_STEPS_UP: Final = 2
"""How many steps up to callers."""
_STEPS_DOWN: Final = 3
"""How many steps down to what is called, in the last one only to blocks and what loads."""

_HEAD: Final = re.compile(r"^class\s+\w+\s*\((?P<bases>[^)]*)\)", re.MULTILINE)
_TABLE: Final = re.compile(r"\w+\s*(?::[^=\n]*)?=\s*(?:[\[{(]|dict\()")
_WORD: Final = re.compile(r"\w+")
_ROWS: Final = "TensorDataset"
_DEVICE: Final = re.compile(r"\bdevice\b|\bcuda\b")
_UNIT_TESTS: Final = ("test_", "Test")
_RUNNERS: Final = ("pytest", "unittest")

_CODE: Final = (Kind.CODE, Kind.GUARD)
_CALLABLE: Final = (Kind.FUNCTION, Kind.CLASS)


class _Rank(IntEnum):
    """What a definition can be expected to tell about training, most first."""

    TRAINS = 0
    HANDLES = 1
    OTHER = 2


def select(graph: Graph, path: str, lines: Lines) -> View:
    """Return the view of a file: who uses it, and what these and the file itself use."""
    own = graph.outline(path)
    if own is None:
        return ALONE
    selection = _Selection(graph, path, own, lines)
    if not _holds_tests(path, own):
        selection.add_bases()
        selection.add_callers()
        selection.add_settings()
        selection.add_callees()
    idle, is_beside_training = Idle(graph).names(path), graph.optimizes()
    if selection.trains or (selection.callers and graph.is_in_program(path)):
        view = _View(selection, lines).build()
    elif idle or (own.starts and is_beside_training):
        view = View(path)
    else:
        return ALONE
    return view._replace(
        idle=idle,
        is_beside_training=is_beside_training,
        is_on_accelerator=graph.is_on_accelerator(path),
    )


def _holds_tests(path: str, own: Outline) -> bool:
    """Return whether a file holds unit tests, which say nothing about how the rest is used."""
    names = (name for each in own.definitions for name in each.binds)
    return is_test(path) and (
        any(name.startswith(_UNIT_TESTS) for name in names)
        or any(each.module in _RUNNERS for each in own.imports)
    )


class _Selection:
    """The definitions taken so far, and how many characters there is room for."""

    def __init__(self, graph: Graph, path: str, own: Outline, lines: Lines) -> None:
        self.graph = graph
        self.lines = lines
        self.path = path
        self.own = own
        self.taken: dict[Place, Definition] = {}
        self.heads: set[Place] = set()
        """The import statements that the taken definitions need."""
        self._room = self._room_of_bases = MOST_CHARACTERS
        self._room_of_long = _LONGEST_CALLER
        self.callers: set[Place] = set()
        """The definitions of other modules that use those of the file, directly or not."""
        self._calling: set[str] = set()

    @property
    def trains(self) -> bool:
        """Whether the file, or a definition that was taken, trains, loads or runs a network."""
        return self.own.trains or any(
            each.trains or any(name in each.chains for name in _RUNS)
            for each in (*self.own.definitions, *self.taken.values())
        )

    def add_bases(self) -> None:
        """Take the classes from which those of the file derive."""
        self._add_bases(Place(self.path, number) for number in range(len(self.own.definitions)))

    def _add_bases(self, heirs: Iterable[Place]) -> None:
        """Take the classes from which some derive, and those from which these do.

        They have room of their own, as both are one thing.
        """
        room, self._room = self._room, self._room_of_bases
        edge = [*heirs]
        for _ in range(_STEPS_UP):
            symbols = (symbol for place in edge for symbol in self._bases(place))
            places = (each for symbol in symbols for each in self.graph.definitions(symbol))
            classes = filter(self._is_class, dict.fromkeys(places))
            edge = [each for each in classes if self._take(each)]
        self._room, self._room_of_bases = room, self._room

    def _bases(self, place: Place) -> list[Symbol]:
        """Return the symbols of the project that a class names as its bases."""
        definition = self.graph.definition(place)
        if definition.kind is not Kind.CLASS:
            return []
        head = _HEAD.search(self.lines(place.path, definition.first, definition.last))
        words = _WORD.findall(head["bases"]) if head is not None else ()
        return [each for each in self.graph.links(place).symbols() if each.name in words]

    def add_callers(self) -> None:
        """Take the definitions that use those of the file, and those that use these.

        What top-level code binds is followed inside its own module (`net = Net()`, then `net(x)`),
        and into others if it is a table.
        """
        wanted: dict[Symbol, int] = {}
        for each in self.own.definitions:
            lateness = (each.kind not in _CALLABLE) + (not each.handles)
            for name in _given(each):
                wanted.setdefault(Symbol(self.path, name), lateness)
        seen = set(wanted)
        for turn in sorted(set(wanted.values())):
            edge = [symbol for symbol, late in wanted.items() if late == turn]
            steps = list(self._users_of(edge, seen))
            for last in _Rank:
                for place in chain.from_iterable(steps):
                    if self._rank(place) <= last:
                        self._take_caller(place)

    def _take_caller(self, place: Place) -> None:
        """Take a definition that uses those of the file; long ones have room of their own."""
        room, most, size = self._room, self._most(place), self.graph.definition(place).size
        least = max(room, _LONG_CLASS) if self._is_class(place) else _LONG_CALLER
        is_long = least < size <= min(most, self._room_of_long)
        if is_long:
            self._room = self._room_of_long
        taken = self._take(place, most)
        if is_long:
            self._room_of_long, self._room = self._room, room
        if taken:
            self._add_bases([place])

    def _most(self, place: Place) -> int:
        """Return the characters that a definition may have which uses those of the file."""
        rank, is_class = self._rank(place), self._is_class(place)
        if rank is _Rank.TRAINS or self._calls_training(place):
            return _LONGEST_CALLER
        if rank is _Rank.HANDLES and not is_class:
            return _LONGEST_CALLER
        derived = is_class and any(each.path == self.path for each in self._bases(place))
        return _MOST_OF_HEIRS if derived else _MOST_OF_USERS

    def _calls_training(self, place: Place) -> bool:
        """Return whether a definition uses one of the file that trains or loads."""
        used = (each for each in self.graph.links(place).symbols() if each.path == self.path)
        places = (each for symbol in used for each in self.graph.definitions(symbol))
        return any(self.graph.definition(each).trains for each in places)

    def _users_of(self, edge: list[Symbol], seen: set[Symbol]) -> Iterator[list[Place]]:
        """Yield the definitions that use some symbols, and then those that use these."""
        for _ in range(_STEPS_UP):
            users = dict.fromkeys(place for symbol in edge for place in self._users(symbol))
            self.callers.update(users)
            self._calling.update(place.path for place in users)
            yield sorted(users, key=self._order)
            given = (
                Symbol(place.path, name)
                for place in users
                for name in _given(self.graph.definition(place))
            )
            edge = [symbol for symbol in dict.fromkeys(given) if symbol not in seen]
            seen.update(edge)

    def add_settings(self) -> None:
        """Take what callers, and modules that they and the file import, set for the process.

        In the order of the modules, and only as far as there is room for settings.
        """
        importing = (self.path, *sorted(self._calling))
        imported = sorted({each for path in importing for each in self.graph.edges(path)})
        room = _MOST_OF_SETTINGS
        for path in dict.fromkeys((*importing[1:], *imported)):
            for number, each in enumerate(self.graph.contents(path).definitions):
                place = Place(path, number)
                if each.size <= room and self._sets(place, each) and self._take(place):
                    room -= each.size

    def _sets(self, place: Place, definition: Definition) -> bool:
        """Return whether a statement binds nothing and uses names of other packages only."""
        if definition.kind not in (Kind.CODE, Kind.ASSIGNMENT) or definition.binds:
            return False
        is_about_others = bool(definition.uses) and not definition.trains
        return is_about_others and not any(self.graph.links(place).symbols())

    def add_callees(self) -> None:
        """Take what the file uses, and then what the definitions that were taken use.

        What may handle tensors comes first with what is short, and all else if there is room left.
        """
        own = [Place(self.path, number) for number in range(len(self.own.definitions))]
        if self._room < _MOST_OF_USED:
            room, self._room = self._room, _MOST_OF_USED
            self._add_used_by(own)
            self._room = room
        self._add_used_by([*own, *self.taken])
        self._add_further_calls()

    def _add_used_by(self, users: list[Place]) -> None:
        """Take what some definitions use, and what that uses."""
        definition = self.graph.definition
        levels: list[list[Place]] = [users, *([] for _ in range(_STEPS_DOWN))]
        for last in (_Rank.HANDLES, _Rank.OTHER):
            for above, below in pairwise(levels):
                used = (symbol for place in above for symbol in self._used(place))
                places = (each for symbol in used for each in self.graph.definitions(symbol))
                following = [each for each in dict.fromkeys(places) if self._may_lend(each)]
                if below is levels[-1]:
                    following = [
                        each
                        for each in following
                        if self._is_class(each) or definition(each).trains
                    ]
                ranked = sorted(following, key=self._order)
                below += (
                    each
                    for each in ranked
                    if self._rank(each) <= last or definition(each).size <= _SHORT
                    if self._take(each)
                )

    def _add_further_calls(self) -> None:
        """Take the lines that go on making what was taken: `parser.add_argument("--lr")`."""
        for place, taken in sorted(self.taken.items()):
            made = (Symbol(place.path, name) for name in taken.binds)
            for each in chain.from_iterable(self.graph.users_at_home(symbol) for symbol in made):
                line = self.graph.definition(each)
                if taken.kind is Kind.ASSIGNMENT and not line.binds and not line.trains:
                    if line.kind is Kind.CODE and line.uses <= {*taken.binds}:
                        self._take(each)

    def _is_class(self, place: Place) -> bool:
        return self.graph.definition(place).kind is Kind.CLASS

    def _rank(self, place: Place) -> _Rank:
        """Return what a definition can be expected to tell about training."""
        definition = self.graph.definition(place)
        if definition.trains:
            return _Rank.TRAINS
        return _Rank.HANDLES if definition.handles else _Rank.OTHER

    def _order(self, place: Place) -> tuple[_Rank, int]:
        """Return when a definition is asked for: what tells much first, and what is short."""
        return self._rank(place), self.graph.definition(place).size

    def _users(self, symbol: Symbol) -> Iterator[Place]:
        """Yield the definitions of other modules that use a symbol and may be linked."""
        definition = self.graph.definition
        if symbol.path != self.path:
            yield from self.graph.users_at_home(symbol)
            places = self.graph.definitions(symbol)
            if not any(
                self._is_table(each) or definition(each).kind in _CALLABLE for each in places
            ):
                return
        elsewhere = [
            place for place in self.graph.users(symbol) if self.graph.is_in_program(place.path)
        ]
        finders = self.graph.finders(symbol.path)  # each of many modules may be what they find
        elsewhere += (each for each in finders if definition(each).size <= _MOST_OF_USERS)
        if len(elsewhere) > _MOST_USERS:
            elsewhere = [place for place in elsewhere if self._compiles(place)]
        yield from (place for place in elsewhere[:_MOST_USERS] if place.path != self.path)

    def _is_table(self, place: Place) -> bool:
        """Return whether a statement binds a dictionary or list: `LOSSES = {"dice": dice}`."""
        each = self.graph.definition(place)
        if each.kind is not Kind.ASSIGNMENT:
            return False
        return _TABLE.match(self.lines(place.path, each.first, each.last)) is not None

    def _compiles(self, place: Place) -> bool:
        """Return whether a definition of a module that trains compiles something."""
        compiles = _COMPILE in self.graph.definition(place).chains
        return compiles and self.graph.trains(place.path)

    def _used(self, place: Place) -> Iterator[Symbol]:
        """Yield the symbols that a definition uses; imports in the file itself are no use."""
        if place.path != self.path or self.graph.definition(place).kind is not Kind.IMPORT:
            yield from self.graph.links(place).symbols()

    def _may_lend(self, place: Place) -> bool:
        """Return whether a definition may be linked where its name is used.

        Other programs that import a module do not run its code.
        """
        is_code = self.graph.definition(place).kind in _CODE
        return place.path in self._calling if is_code else True

    def _take(self, place: Place, most: int = MOST_CHARACTERS) -> bool:
        """Take a definition if it is new and there is room; return whether it was taken."""
        if place.path == self.path or place in self.taken:
            return False
        definition = self.graph.definition(place)
        if definition.size > min(most, self._room):
            return False
        heads = dict(self._needed(place, definition))
        new = heads.keys() - self.heads
        size = definition.size + sum(heads[each] for each in new)
        if size > self._room:
            return False
        self._room -= size
        self.heads |= new
        self.taken[place] = definition
        return True

    def _needed(self, place: Place, definition: Definition) -> Iterator[tuple[Place, int]]:
        """Yield the import statements that a definition needs, and their sizes."""
        for head in self.graph.heads(place.path):
            each = self.graph.definition(head)
            if head != place and (not each.binds or not definition.uses.isdisjoint(each.binds)):
                yield head, each.size


class _View:
    """Makes the view of a file from the definitions that were taken."""

    def __init__(self, selection: _Selection, lines: Lines) -> None:
        self.graph = selection.graph
        self.path = selection.path
        self.own = selection.own
        self.taken = selection.taken
        self.heads = selection.heads
        self.callers = selection.callers
        self.lines = lines
        self.seen = frozenset(
            Symbol(place.path, name) for place, each in self.taken.items() for name in each.binds
        )
        """The symbols in view, without those of the file itself."""

    def build(self) -> View:
        """Return the view; one without modules still tells what was not seen."""
        places = [
            Place(self.path, number)
            for number, each in enumerate(self.own.definitions)
            if each.kind is not Kind.IMPORT
        ]
        names, stars = _merged(map(self.graph.links, places))
        unseen = {
            name
            for name, symbol in names.items()
            if symbol is None or (symbol.path != self.path and symbol not in self.seen)
        }
        by_module: dict[str, list[int]] = {}
        for place in sorted(self.taken):
            by_module.setdefault(place.path, []).append(place.number)
        return View(
            self.path,
            tuple(self._linked(path, numbers) for path, numbers in by_module.items()),
            _known(names),
            stars,
            frozenset(unseen),
            frozenset(self._called_unseen()),
            has_device_rows=self._has_device_rows(),
        )

    def _has_device_rows(self) -> bool:
        """Return whether code out of view makes a `TensorDataset` and names a device."""
        modules = (Symbol(path, _ROWS) for path in self.graph.reached(self.path))
        makers = chain.from_iterable(self.graph.users_at_home(each) for each in modules)
        return any(
            _DEVICE.search(self.lines(place.path, made.first, made.last))
            for place in makers
            for made in [self.graph.definition(place)]
            if place not in self.taken
        )

    def _linked(self, path: str, numbers: list[int]) -> LinkedModule:
        """Return the excerpts of one module, with the imports that they need."""
        names, stars = _merged(self.graph.links(Place(path, number)) for number in numbers)
        definitions = self.graph.contents(path).definitions
        needed = (place.number for place in self.heads if place.path == path)
        excerpts = (
            Excerpt(each.first, each.code(self.lines(path, each.first, each.last)))
            for each in (definitions[number] for number in sorted({*numbers, *needed}))
        )
        return LinkedModule(path, tuple(excerpts), _known(names), stars)

    def _called_unseen(self) -> Iterator[Symbol]:
        """Yield the functions and classes, own and calling ones, that code outside may call."""
        for number, each in enumerate(self.own.definitions):
            yield from self._escaping(Place(self.path, number), each)
        for place in self.callers & self.taken.keys():
            yield from self._escaping(place, self.taken[place])

    def _escaping(self, place: Place, definition: Definition) -> Iterator[Symbol]:
        if definition.kind in _CALLABLE:
            exported = self.graph.contents(place.path).exports or ()
            is_found = any(True for _ in self.graph.finders(place.path))
            for symbol in (Symbol(place.path, name) for name in definition.binds):
                if (
                    is_found
                    or symbol.name in exported
                    or self.graph.is_reexported(symbol)
                    or any(
                        each.path != self.path and each not in self.taken
                        for each in self._users(symbol)
                    )
                ):
                    yield symbol

    def _users(self, symbol: Symbol) -> Iterator[Place]:
        yield from self.graph.users(symbol)
        if symbol.path != self.path and not is_test(symbol.path):
            yield from self.graph.users_at_home(symbol)


def _given(definition: Definition) -> tuple[str, ...]:
    """Return the names that other modules may take from a definition; imports give none."""
    return definition.binds if definition.kind is not Kind.IMPORT else ()


def _merged(links: Iterable[Links]) -> tuple[dict[str, Symbol | None], dict[str, Symbol]]:
    """Return the names and the stars of several definitions, sorted."""
    names: dict[str, Symbol | None] = {}
    stars: dict[str, Symbol] = {}
    for each in links:
        names.update(each.names)
        stars.update(each.stars)
    return dict(sorted(names.items())), dict(sorted(stars.items()))


def _known(names: Mapping[str, Symbol | None]) -> dict[str, Symbol]:
    return {name: symbol for name, symbol in names.items() if symbol is not None}
