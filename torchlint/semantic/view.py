"""View: the definitions of other modules with which a file is analyzed, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

NO_SYMBOLS: Final[Mapping[str, Symbol]] = MappingProxyType({})
NO_FILES: Final[Mapping[str, str]] = MappingProxyType({})
COMPOSED: Final = "hydra:"
"""What stands before the names of files that Hydra puts together."""
MADE: Final = "made:"
"""What stands before the names of classes, for the files from which Hydra makes their objects."""
STARTED: Final = "started with"
"""The name of the file of options with which shell scripts start a script, for the code."""


class Symbol(NamedTuple):
    """A name at the top level of a module of the project."""

    path: str
    name: str


class Place(NamedTuple):
    """A row of a file, printed as `data.py:12`; rows count from 1."""

    path: str
    row: int

    def __str__(self) -> str:
        return f"{self.path}:{self.row}"


class Excerpt(NamedTuple):
    """The whole lines of one top-level statement, and the row of its first line in its file."""

    row: int
    text: str


class LinkedModule(NamedTuple):
    """The excerpts of another module, in source order and with the imports that they need.

    `names` are the symbols behind what its imports spell: the key is the qualified name as written
    there (`data.loaders`, `.engine.run`). `stars` are the symbols that its star imports bind.
    """

    path: str
    excerpts: tuple[Excerpt, ...]
    names: Mapping[str, Symbol] = NO_SYMBOLS
    stars: Mapping[str, Symbol] = NO_SYMBOLS


class View(NamedTuple):
    """The other modules with which the file at `path` is analyzed.

    `names` and `stars` are those of the file's own imports. `unseen` are the qualified names of its
    imports, as written, that belong to the project but are in no linked module. `called_unseen` are
    the functions and classes, those of the file and those that call these, that code outside the
    view may call. `idle` are the functions and classes of the file that no start of the project
    runs, and the values that nothing reads. `is_beside_training` is whether any module of the
    project trains a network, `is_on_accelerator` whether another module of its programs
    uses an accelerator, `has_device_rows` whether modules below the file make a `TensorDataset`
    out of view in code that names a device. `files` are the linked modules that stand for YAML and
    JSON, by the names that code has for these files. `is_broken` is whether the file imports what
    the project lacks, so that it never runs.
    """

    path: str = ""
    modules: tuple[LinkedModule, ...] = ()
    names: Mapping[str, Symbol] = NO_SYMBOLS
    stars: Mapping[str, Symbol] = NO_SYMBOLS
    unseen: frozenset[str] = frozenset()
    called_unseen: frozenset[Symbol] = frozenset()
    idle: frozenset[str] = frozenset()
    is_beside_training: bool = False
    is_on_accelerator: bool = False
    has_device_rows: bool = False
    files: Mapping[str, str] = NO_FILES
    is_broken: bool = False


ALONE: Final = View()
"""The view of a file that is analyzed without any other."""
