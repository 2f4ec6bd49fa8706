"""The graph around one file, found by text search, with few outlines made."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from torchlint.caching import cached_method
from torchlint.notebook import is_notebook
from torchlint.program.graph import Graph, Place, spread
from torchlint.program.imports import Imports, folder_of
from torchlint.program.outline import ACCELERATING, MARKS, Outline, is_test
from torchlint.semantic.view import Symbol

_IMPORT: Final = re.compile(
    rb"(?:\bfrom\b(?P<module>(?:[.\w\x80-\xff \t\f]|\\\r?\n)*?))?\bimport\b(?:[ \t\f]|\\\r?\n)*"
    rb"(?P<names>\((?:[^()#]|#[^\r\n]*(?![^\r\n]))*\)|(?:[^\r\n\\#;]|\\\r?\n)*)"
)
_WORD: Final = re.compile(rb"[\w\x80-\xff]+|\*")
_INIT: Final = "__init__.py"


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
        return self._texts.has(path, MARKS) and super().trains(path)

    def accelerates(self, path: str) -> bool:
        """Return whether a module uses an accelerator."""
        return self._texts.has(path, ACCELERATING) and super().accelerates(path)

    def sources(self, *marks: str) -> Iterable[str]:
        """Return the modules, no tests, sorted: those whose text may hold one of some marks."""
        return self._texts.holding(marks) if marks else self._texts.searched

    def text(self, path: str) -> str:
        """Return the text of a module."""
        return self._texts.texts[path].decode("utf-8", "replace")

    def is_on_accelerator(self, path: str) -> bool:
        """Return whether another module of the programs that a module is in uses an accelerator."""
        return any(self._texts.holding(ACCELERATING)) and super().is_on_accelerator(path)

    @cached_method
    def importers(self, path: str) -> list[str]:
        """Return the modules, no tests, that import from a module."""
        users = set(self._texts.importing(path))
        bound = {name for each in self.contents(path).definitions for name in each.binds}
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
        gates = spread(
            start,
            lambda gate: (
                Symbol(user, name)
                for user in self._texts.importing_name(*gate)
                for name in self._names_for(user, symbol, gate.name)
            ),
        )
        return islice(gates, 1, None)

    def _names_for(self, path: str, symbol: Symbol, name: str) -> Iterator[str]:
        """Yield the names that a module imports a symbol as.

        A module under its own name is left out: imports spell that name wherever they take it from.
        """
        outline = self.contents(path)
        for entry in outline.imports:
            is_candidate = entry.name == name if symbol.name else entry.bound != name
            if is_candidate and self.export(path, entry.bound) == symbol:
                yield entry.bound
        if outline.stars and self.export(path, name) == symbol:
            yield name


class Texts:
    """The bytes of the files of a project; tests are not searched.

    All answers hold too much rather than too little: comments and strings are searched as well.
    """

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self.texts = texts
        self.searched = sorted(path for path in texts if not is_test(path))
        self._words: dict[str, frozenset[bytes]] = {}
        """The words of the import statements of files, shared with copies that change others."""
        self._own_words: dict[str, frozenset[bytes]] = {}
        self._changed = frozenset[str]()
        self._dotted: dict[str, list[str]] = {}

    def with_texts(self, texts: Mapping[str, bytes]) -> Texts:
        """Return the texts with others for some files."""
        changed = Texts({**self.texts, **texts})
        changed._words = self._words
        changed._changed = self._changed.union(texts)
        return changed

    @cached_method
    def importing(self, path: str) -> list[str]:
        """Return the files whose import statements may name a module."""
        return [user for user in self.searched if user != path and self._may_import(user, path)]

    def importing_name(self, path: str, name: str) -> Iterator[str]:
        """Yield the files that may import a name from a module, or all its names."""
        word = name.encode()
        for user in self.importing(path):
            if word in self.texts[user] or b"*" in self._imported_words(user):
                yield user

    def holding(self, marks: Iterable[str]) -> Iterator[str]:
        """Yield the files whose text holds one of some marks."""
        sought = tuple(marks)
        return (each for each in self.searched if is_notebook(each) or self.has(each, sought))

    def has(self, path: str, marks: Iterable[str]) -> bool:
        """Return whether the text of a file holds one of some marks."""
        text = self.texts.get(path, b"")
        return any(mark.encode() in text for mark in marks)

    def spelling(self, path: str, name: str) -> Iterator[str]:
        """Yield the files that may use a name as an attribute of an attribute (`p.module.name`)."""
        stem = stem_of(path)
        if stem not in self._dotted:
            part = f".{stem}.".encode()
            self._dotted[stem] = [user for user in self.searched if part in self.texts[user]]
        whole = f".{stem}.{name}".encode()
        return (user for user in self._dotted[stem] if whole in self.texts[user])

    def _may_import(self, user: str, path: str) -> bool:
        stem = stem_of(path).encode()
        if stem and stem in self.texts[user]:
            if is_notebook(user) or stem in self._imported_words(user):
                return True
        is_around = path.endswith(_INIT) and user.startswith(folder_of(path))
        return is_around and b"." in self._imported_words(user)

    def _imported_words(self, path: str) -> frozenset[bytes]:
        """Return the words of the import statements of a file.

        `.` stands for an import from a package itself (`from . import x`).
        """
        known = self._own_words if path in self._changed else self._words
        if path not in known:
            known[path] = frozenset(_words_of_imports(self.texts[path]))
        return known[path]


def _words_of_imports(text: bytes) -> Iterator[bytes]:
    for each in _IMPORT.finditer(text):
        module = each["module"] or b""
        yield from _WORD.findall(module)
        yield from _WORD.findall(each["names"])
        if module.strip().endswith(b"."):
            yield b"."


def stem_of(path: str) -> str:
    """Return the last part of a module's dotted name."""
    return path.removesuffix(_INIT).removesuffix("/").removesuffix(".py").rpartition("/")[2]
