"""Absent modules: imports of what the project would have to have, and does not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from torchlint.program.graph import Graph
from torchlint.program.imports import Imports, folder_of
from torchlint.program.outline import Import
from torchlint.program.roles import is_test

_PLAIN: Final = re.compile(r"^(?:from|import)[ \t]+([.\w]+)", re.MULTILINE)
"""An import that runs whenever its module is imported, and what it names."""
_MADE: Final = re.compile(r"_.*|.*(?:version|generated|_pb2\w*)")
"""Names of modules that a build makes."""
_PATH: Final = "sys.path"


class Absent:
    """Tells which files always raise when they are started: programs that were left behind.

    `settings` is the text that says how the project is built, where it may name what a build makes.
    """

    def __init__(self, graph: Graph, root: Path, settings: str) -> None:
        self._graph = graph
        self._imports: Imports = graph.imports
        self._root = root
        self._settings = settings

    def breaks(self, path: str, text: str) -> bool:
        """Return whether an import at the top of a file, which no other imports, always raises."""
        outline = self._graph.outline(path)
        if outline is None or _PATH in text or self._graph.importers(path):
            return False
        spelled = set(_PLAIN.findall(text))
        plain = [each for each in outline.imports if _spelled(each) in spelled]
        own = {_head(each) for each in plain if self._is_found(path, each)}
        return any(
            self._lacks_module(path, each) or self._lacks_name(path, each)
            for each in plain
            if each.level or _head(each) in own
        )

    def _is_found(self, path: str, entry: Import) -> bool:
        """Return whether an import finds a module below a package of the project."""
        return "." in entry.module and self._graph.target(path, entry) is not None

    def _lacks_module(self, path: str, entry: Import) -> bool:
        """Return whether the module of an import is missing in a package that is here."""
        parts = entry.module.split(".") if entry.module else []
        if self._imports.module(path, entry.level, entry.module) is not None:
            return False
        while parts:
            *parts, last = parts
            home = self._imports.module(path, entry.level, ".".join(parts))
            if home is not None and (parts or entry.level):
                is_package = home.path.endswith(("/", "__init__.py"))
                folder = home.path if home.path.endswith("/") else folder_of(home.path)
                is_made = _MADE.fullmatch(last) or last in self._settings
                return is_package and not is_made and not self._has(folder, last)
        return False

    def _has(self, folder: str, name: str) -> bool:
        """Return whether a folder has a module or folder of a name, in whatever form."""
        try:
            entries = list((self._root / folder).iterdir())
        except OSError:
            return True
        return any(each.name.partition(".")[0] == name for each in entries)

    def _lacks_name(self, path: str, entry: Import) -> bool:
        """Return whether a module that is here has no word of what is imported from it."""
        home = self._imports.module(path, entry.level, entry.module)
        if entry.name is None or home is None or not home.is_sure or is_test(home.path):
            return False
        outline = self._graph.outline(home.path)
        if outline is None or self._graph.export(home.path, entry.name) is not None:
            return False
        words = {word for each in outline.definitions for word in each.lookups}
        if words or outline.looks_modules_up or "__getattr__" in self._graph.numbers(home.path):
            return False
        if any(self._imports.module(home.path, *each) is None for each in outline.stars):
            return False
        in_package = home.path.endswith("__init__.py")
        if in_package and self._has(folder_of(home.path), entry.name):
            return False
        text = (self._root / home.path).read_text(encoding="utf-8", errors="replace")
        return re.search(rf"\b{entry.name}\b", text) is None


def _head(entry: Import) -> str:
    return entry.module.partition(".")[0]


def _spelled(entry: Import) -> str:
    return "." * entry.level + entry.module
