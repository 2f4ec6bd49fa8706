"""The programs of a run: which definitions of other modules each file is judged with."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from importlib.util import source_hash
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from torchlint import __version__
from torchlint.config import Settings
from torchlint.engine.ownpart import as_given
from torchlint.engine.processes import Died, can_fork, processors
from torchlint.engine.project import SettingsOf, default_settings, layout_of
from torchlint.engine.results import internal_error
from torchlint.engine.store import keep, read_kept
from torchlint.semantic.view import ALONE, View
from torchlint.source import Source

if TYPE_CHECKING:
    from torchlint.program.folder import Layout
    from torchlint.program.index import Index
    from torchlint.program.outline import Outline

STDIN: Final = "-"
"""The path of a text that is no file."""
WORTH_A_PROCESS: Final = 50
"""How many files make another process pay that reads them."""
MOST_FOR_A_FILE: Final = 10
"""How many files of a project are read for each file to check, so that no search is needed."""


class Linked:
    """What one text is judged with, found out on first use."""

    def __init__(self, path: str, find: Callable[[], View]) -> None:
        self._path = path
        self._find = find
        self.problem = ""
        """Why the text is judged alone, if an internal error is the reason."""

    @cached_property
    def view(self) -> View:
        """The definitions of other modules; none if they cannot be found out."""
        try:
            return self._find()
        except Exception as error:
            who, rest = "the search for other modules", "the file was judged alone"
            self.problem = internal_error(who, self._path, error, rest)
            return ALONE

    @cached_property
    def digest(self) -> str:
        """The digest of the view."""
        from torchlint.program.index import digest

        return digest(self.view).hex()

    @property
    def asked_digest(self) -> str:
        """The digest of the view, empty if nothing has depended on the view so far."""
        return self.digest if "view" in vars(self) else ""


Link = Callable[[Source, Settings], Linked]
"""A function that returns what a text is judged with under some settings."""


def alone(source: Source, settings: Settings) -> Linked:
    """Return that a text is judged without any other."""
    return Linked(source.path, lambda: ALONE)


class Started(NamedTuple):
    """A program: the other files that its first one reaches, and what each is judged with."""

    others: tuple[str, ...]
    link: Link


class Programs:
    """The indexes of the projects of a run, each made on first use.

    `cache_dir` is the folder in which they keep what they know of files, None to keep nothing.
    `settings_of` returns the settings of a file, which may tell where its project is.
    """

    def __init__(
        self, cache_dir: Path | None = None, settings_of: SettingsOf = default_settings
    ) -> None:
        self._cache_dir = cache_dir
        self._settings_of = settings_of
        self._layouts: dict[str, Layout] = {}
        self._indexes: dict[Layout, Index] = {}
        self._missing: dict[Layout, int] = {}
        """How many files of a project were not known when its index was made."""

    def link(self, source: Source, settings: Settings) -> Linked:
        """Return what a text is judged with: the other modules are as they are on the disk."""
        if not settings.program or source.path == STDIN:
            return alone(source, settings)
        return Linked(source.path, lambda: self.index(source.path).view(Path(source.path), source))

    def started(self, path: str, settings: Settings) -> Started:
        """Return the program that a file starts."""
        index = self.index(path)
        names = index.program(Path(path)) if settings.program else ()
        if not names:
            return Started((), self.link)
        view = index.views_within(names)
        return Started(
            tuple(as_given(each, names[0], path) for each in names[1:]),
            lambda source, _: Linked(source.path, lambda: view(Path(source.path))),
        )

    def started_by(self, path: str) -> tuple[str, ...]:
        """Return the files that start a program with a file in it, none for one that starts."""
        index = self.index(path)
        own = index.name(Path(path)) or ""
        return tuple(as_given(each, own, path) for each in index.started_by(Path(path)))

    def starts(self, folder: str) -> tuple[str, ...]:
        """Return the files below a folder that start a program which trains."""
        beside = os.path.join(folder, STDIN)  # noqa: PTH118
        index = self.index(beside)
        own = index.name(Path(beside)) or ""
        return tuple(as_given(each, own, beside) for each in index.starts(Path(folder)))

    def index(self, path: str) -> Index:
        """Return the index of the project that a file belongs to."""
        folder = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
        if folder not in self._layouts:
            self._layouts[folder] = layout_of(path, self._settings_of(path))
        layout = self._layouts[folder]
        if layout not in self._indexes:
            self._indexes[layout] = self._opened(layout)
        return self._indexes[layout]

    def _opened(self, layout: Layout) -> Index:
        from torchlint.program.index import Index

        index = Index(*layout)
        if self._cache_dir is not None:
            index.load(read_kept(self._cache_dir, _file(layout.root)))
            self._missing[layout] = len(index.missing())
        return index

    def save(self) -> None:
        """Keep what is known of files for the next run."""
        for layout, before in self._missing.items():
            index = self._indexes[layout]
            if self._cache_dir is not None and len(index.missing()) < before:
                keep(self._cache_dir, _file(layout.root), index.dump())

    @property
    def indexes(self) -> tuple[Index, ...]:
        """The indexes in use, by their roots."""
        return tuple(index for _, index in sorted(self._indexes.items()))

    def build(self, paths: Iterable[str], processes: int | None) -> None:
        """Read the projects of many files now, for processes that are forked later, too.

        In a project of far more files each view is found by a search.
        """
        counts = Counter(map(self.index, paths))
        for index, count in counts.items():
            if len(index.missing()) <= MOST_FOR_A_FILE * count:
                index.learn(_outlined(index, processes))
                index.build()

    def change(self, path: str, source: Source | None) -> None:
        """Take a text of a file for that on the disk; None takes that back."""
        self.index(path).change(Path(path), source)

    def refresh(self) -> None:
        """Look at the disk and at the settings again."""
        self._layouts.clear()
        for index in self._indexes.values():
            index.refresh()


def _file(root: str) -> str:
    """Return the name of the file in which the index of a project is kept."""
    about = (__version__, sys.version_info[:2], root)
    return f"{source_hash(repr(about).encode('utf-8', 'surrogateescape')).hex()}.outlines"


def _outlined(index: Index, processes: int | None) -> list[tuple[str, Outline | None]]:
    """Return the missing outlines of an index, made in worker processes if there are many."""
    missing = index.missing()
    processes = min(processes or processors(), len(missing) // WORTH_A_PROCESS)
    if processes < 2 or not can_fork():
        return []
    from torchlint.engine.workers import Workers
    from torchlint.program.index import outline_at

    workers = Workers(lambda at: outline_at(index.root, missing[at]), [1] * len(missing), processes)
    return [
        (missing[at], outline) for at, outline in workers.results() if not isinstance(outline, Died)
    ]
