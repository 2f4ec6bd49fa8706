"""Which module of the project an import names."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from torchlint.caching import cached_method

_INIT: Final = "__init__.py"
_FOREIGN: Final = "torch"
"""The package whose names keep their meaning, even in a copy of its repository."""


class Module(NamedTuple):
    """What an import finds: a file, or for a namespace package the folder with a last `/`.

    `is_sure` is whether Python finds it as well when the importing file is no main script.
    """

    path: str
    is_sure: bool = True


def folder_of(path: str) -> str:
    """Return the folder of a file or folder, with its last `/`, "" for the root."""
    head, slash, _ = path.removesuffix("/").rpartition("/")
    return head + slash


class Imports:
    """The modules of a project by their names; paths are relative to its root.

    `sources` are folders in which absolute imports are looked up last. `name` is that of the root,
    which is a package itself where it has an `__init__.py`: under another name, too, if nothing
    else in the project has that name, for a clone may have any.
    """

    def __init__(self, paths: Iterable[str], sources: tuple[str, ...] = (), name: str = "") -> None:
        self._sources = sources
        self._name = name
        self._files = frozenset(path for path in paths if path.endswith(".py"))
        self._folders = frozenset(_folders(self._files))

    def module(self, importer: str, level: int, name: str) -> Module | None:
        """Return the module that a file imports under a dotted name, with `level` leading dots."""
        if not level:
            hits = self._absolute(folder_of(importer), name)
            return next((hit for hit in hits if hit.path != importer), None)
        folder = folder_of(importer)
        for _ in range(level - 1):
            if not folder:
                return None
            folder = folder_of(folder)
        found = self._below(folder, name) if name else self._package(folder)
        return Module(found) if found is not None else None

    def submodule(self, package: str, name: str) -> str | None:
        """Return a module directly inside a package, None for the child of a plain module."""
        if package.endswith("/"):
            return self._below(package, name)
        return self._below(folder_of(package), name) if package.endswith(_INIT) else None

    @staticmethod
    def is_foreign(name: str) -> bool:
        """Return whether a module that is not of the project is one of torch or of Python."""
        head = name.partition(".")[0]
        return head == _FOREIGN or head in sys.stdlib_module_names

    @cached_method
    def _absolute(self, folder: str, name: str) -> tuple[Module, ...]:
        return tuple(self._search(folder, name))

    def _search(self, folder: str, name: str) -> Iterator[Module]:
        """Yield the modules of that name, folders without `__init__.py` last."""
        head = name.partition(".")[0]
        if head == _FOREIGN:
            return
        namespaces: list[Module] = []
        for base, is_sure in self._bases(folder):
            if not is_sure and head in sys.stdlib_module_names:
                continue
            path = self._below(base, name)
            if path is None:
                continue
            if path.endswith("/"):
                namespaces.append(Module(path, is_sure))
            else:
                yield Module(path, is_sure)
        yield from namespaces
        if _INIT in self._files:
            yield from self._in_root(head, name.removeprefix(head).removeprefix("."))

    def _in_root(self, head: str, inside: str) -> Iterator[Module]:
        """Yield the module inside the root that a name means, if the root is package `head`."""
        is_named = head == self._name
        if not is_named and (head in sys.stdlib_module_names or self._below("", head)):
            return
        path = self._below("", inside) if inside else _INIT if is_named else None
        if path is not None:
            yield Module(path, is_named)

    def _bases(self, folder: str) -> Iterator[tuple[str, bool]]:
        """Yield the folders in which a name is looked up, and whether they are no package."""
        while True:
            is_sure = not folder or folder + _INIT not in self._files
            yield folder, is_sure
            if f"{folder}src/" in self._folders:
                yield f"{folder}src/", is_sure
            if not folder:
                break
            folder = folder_of(folder)
        for source in self._sources:
            yield source, True

    def _below(self, base: str, name: str) -> str | None:
        """Return the module of a dotted name below a folder, by Python's order."""
        folder = base
        *parents, last = name.split(".")
        for parent in parents:
            folder = f"{folder}{parent}/"
            if folder + _INIT not in self._files and (
                f"{folder[:-1]}.py" in self._files or folder not in self._folders
            ):
                return None
        if f"{folder}{last}/{_INIT}" in self._files:
            return f"{folder}{last}/{_INIT}"
        if f"{folder}{last}.py" in self._files:
            return f"{folder}{last}.py"
        return f"{folder}{last}/" if f"{folder}{last}/" in self._folders else None

    def _package(self, folder: str) -> str | None:
        if folder + _INIT in self._files:
            return folder + _INIT
        return folder if folder else None


def _folders(files: Iterable[str]) -> Iterator[str]:
    """Yield the folders that hold files, directly or below."""
    seen: set[str] = set()
    for path in files:
        folder = folder_of(path)
        while folder and folder not in seen:
            seen.add(folder)
            yield folder
            folder = folder_of(folder)
