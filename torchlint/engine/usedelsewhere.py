"""Which names of a module other files of its project use, found by text search."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from torchlint.config import Settings
from torchlint.engine.files import TooManyFilesError, discover
from torchlint.engine.project import SettingsOf, default_settings, layout_of
from torchlint.notebook import is_notebook
from torchlint.program.folder import MOST_BYTES, MOST_FILES
from torchlint.program.imports import Imports
from torchlint.source import Source

UsedElsewhere = Callable[[Source, frozenset[str]], "frozenset[str] | None"]
"""A function that returns which of the given names of a file other files use, None if unknown."""

_PACKAGE: Final = "__init__.py"
_IMPORT: Final = re.compile(
    r"(?:\bfrom\s*(?P<module>(?:[.\w \t]|\\\r?\n)*?)\s*)?\bimport\b(?:[ \t]|\\\r?\n)*"
    r"(?P<names>\((?:[^()#]|#[^\n]*(?!.))*\)|(?:[^\n\\#;]|\\\r?\n)*)"
)
_WORD: Final = re.compile(r"\w+")
_ALIAS: Final = re.compile(r"(\w+)\s+as\s+(\w+)")
_DYNAMIC: Final = re.compile(
    r"\b(?:import_module|__import__|runpy|execfile|spec_from_file_location|run_line_magic"
    r"|SourceFileLoader|load_source)\b|\bexec\s*\(|%run\b"
)
_RUNS: Final = re.compile(r"%run\b|\bexec\s*\(|\bexecfile\b|\brun_line_magic\b")
"""Calls that run another file in the namespace of this one."""
_ALL: Final = re.compile(
    r"\b__all__\b(?:\s*:[^=\n]*)?\s*=\s*[\[(](?P<names>[^][()]*)[\])]\s*$", re.M
)
_FOREIGN: Final = "torch"
"""The package whose modules share names with those of many projects (`utils`, `data`)."""


def used_nowhere(source: Source, names: frozenset[str]) -> frozenset[str]:
    """Return no names: there are no other files."""
    return frozenset()


def usage_unknown(source: Source, names: frozenset[str]) -> None:
    """Return None: the other files are not known."""
    return


class Projects:
    """The projects of the files of a run, each read once, on first use."""

    def __init__(self, settings_of: SettingsOf = default_settings) -> None:
        self._settings_of = settings_of
        self._roots: dict[str, str] = {}
        self._files: dict[str, tuple[_File, ...] | None] = {}

    def used_elsewhere(self, source: Source, names: frozenset[str]) -> frozenset[str] | None:
        """Return which of these names of a file the other files of its project may use.

        None for a text that is not a file.
        """
        path = os.path.realpath(source.path)
        if not os.path.isfile(path):  # noqa: PTH113
            return None
        if os.path.basename(path) == _PACKAGE:  # noqa: PTH119
            return names
        files = self._project(path)
        if files is None:
            return names
        module = _Module(path, source.text)
        others = [file for file in files if file.path != path]
        return frozenset(name for name in names if module.is_used(name, others))

    def _project(self, path: str) -> tuple[_File, ...] | None:
        """Return the files of a file's project, None if there are too many."""
        folder = os.path.dirname(path)  # noqa: PTH120
        if folder not in self._roots:
            self._roots[folder] = layout_of(path, self._settings_of(path)).root
        root = self._roots[folder]
        if root not in self._files:
            self._files[root] = _read(root)
        return self._files[root]


class _Import(NamedTuple):
    """One import statement: the module after `from`, and the text after `import`."""

    module: str
    names: str

    @property
    def is_ours(self) -> bool:
        """Whether it may import from a module of the project."""
        package = self.module.partition(".")[0] or _first(self.names)
        return package != _FOREIGN

    @property
    def is_star(self) -> bool:
        """Whether it imports all names of a module."""
        return self.names.strip("( \t\r\n)") == "*"


class _File:
    """A file that may use names of others."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    @cached_property
    def imports(self) -> tuple[_Import, ...]:
        """The statements that may import from modules of the project."""
        found = (
            _Import("".join((each["module"] or "").replace("\\", "").split()), each["names"])
            for each in _IMPORT.finditer(self.text)
        )
        return tuple(each for each in found if each.is_ours)

    @cached_property
    def is_dynamic(self) -> bool:
        """Whether the file imports or runs modules dynamically."""
        return _DYNAMIC.search(self.text) is not None

    def takes_all_beside(self, modules: Container[str]) -> bool:
        """Return whether the file has a star import of a module that is none of these."""
        return any(
            (each.module.rpartition(".")[2] or "__init__") not in modules
            for each in self.imports
            if each.is_star and not Imports.is_foreign(each.module)
        )

    def has(self, word: str) -> bool:
        """Return whether the text contains a whole word."""
        return word in self.text and _whole(word).search(self.text) is not None


class _Module:
    """The module in question, as other files refer to it."""

    def __init__(self, path: str, text: str) -> None:
        self.name = Path(path).stem
        mentions = len(re.findall(r"\b__all__\b", text))
        exported = _ALL.search(text)
        self.exported = exported["names"] if exported is not None and mentions == 1 else None
        """The names in `__all__`, None if it is missing or not a plain list."""

    def is_used(self, name: str, others: Iterable[_File]) -> bool:
        """Return whether other files may use a name of this module."""
        others = list(others)
        if self.exported is not None and _whole(name).search(self.exported):
            return True
        near = [file for file in others if self.name in file.text]
        called = {self.name}.union(*(self._aliases(file) for file in near))
        attribute = _attribute(called, name)
        parts = (part for file in others for part in Path(file.path).parts)
        here = {self.name, *(part.removesuffix(".py") for part in parts)}
        return any(
            self._is_imported_from(file, name) or self._is_found_in(file, name) for file in near
        ) or any(
            (any(word in file.text for word in called) and _reads(file, attribute))
            or _finds(file, name)
            or (file.takes_all_beside(here) and file.has(name))
            for file in others
            if name in file.text
        )

    def _aliases(self, file: _File) -> Iterator[str]:
        """Yield the names under which a file imports the module."""
        for each in file.imports:
            for word, alias in _ALIAS.findall(each.names):
                if word == self.name:
                    yield alias

    def _is_imported_from(self, file: _File, name: str) -> bool:
        """Return whether a file imports a name from the module, perhaps by a star import."""
        return any(
            _whole(name).search(each.names) is not None or (each.is_star and self.exported is None)
            for each in file.imports
            if each.module.rpartition(".")[2] == self.name
        )

    def _is_found_in(self, file: _File, name: str) -> bool:
        """Return whether a file looks up a name at run time, or runs the module."""
        if file.is_dynamic and file.has(self.name):
            return _RUNS.search(file.text) is not None or file.has(name)
        imported = any(self.name in _WORD.findall(each.names) for each in file.imports)
        return imported and _quoted(name).search(file.text) is not None


def _reads(file: _File, attribute: re.Pattern[str]) -> bool:
    """Return whether a file reads a name as an attribute of the module."""
    return any(
        found["path"].partition(".")[0] != _FOREIGN for found in attribute.finditer(file.text)
    )


def _finds(file: _File, name: str) -> bool:
    """Return whether a file may read a name from a dynamically imported module."""
    return file.is_dynamic and re.search(rf"[.\"']{re.escape(name)}\b", file.text) is not None


def _attribute(modules: Iterable[str], name: str) -> re.Pattern[str]:
    words = "|".join(map(re.escape, sorted(modules)))
    return re.compile(rf"(?<![\w.])(?P<path>(?:\w+\.)*(?:{words}))\s*\.\s*{re.escape(name)}\b")


def _quoted(word: str) -> re.Pattern[str]:
    return re.compile(rf"[\"']{re.escape(word)}[\"']")


def _whole(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")


def _first(names: str) -> str:
    found = _WORD.search(names)
    return found.group() if found is not None else ""


def _read(root: str) -> tuple[_File, ...] | None:
    """Read the files of a project, also those that users exclude; None if it is too large."""
    settings = Settings(root=Path(root))
    try:
        found = discover([Path(root)], lambda name: settings, MOST_FILES).files
    except TooManyFilesError:
        return None
    files: list[_File] = []
    size = 0
    for path in found:
        try:
            size += path.stat().st_size
            if size > MOST_BYTES:
                return None
            data = path.read_bytes()
        except OSError:
            continue
        files.append(_File(os.path.realpath(path), _text(str(path), data)))
    return tuple(files)


def _text(path: str, data: bytes) -> str:
    """Return the code of a file; for a malformed notebook the whole text."""
    import json

    text = data.decode("utf-8", "replace")
    if not is_notebook(path):
        return text
    try:
        return "\n".join(_cells(json.loads(text)))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return text.replace("\\n", "\n").replace('\\"', '"')


def _cells(notebook: Any) -> Iterator[str]:
    """Yield the code of the cells of a notebook of any format version."""
    sheets = notebook.get("worksheets") or [notebook]
    for cell in (cell for sheet in sheets for cell in sheet["cells"]):
        if cell["cell_type"] == "code":
            yield "".join(cell["source"] if "source" in cell else cell["input"])
