"""Finding the files of a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from torchlint.config import Settings
from torchlint.engine.patterns import Patterns, excluded_by
from torchlint.engine.project import CONFIGURATION, SettingsOf
from torchlint.program.folder import Ignored

DECIDING: Final = (*CONFIGURATION, ".gitignore")
"""The names of the files that configure how a folder is searched and checked."""

WORTH_REMEMBERING: Final = 50
"""From how many files on loading the cache is faster than reading the files."""


class Discovery(NamedTuple):
    """The files found, sorted by path, and the folders that were searched.

    `errors` has a line for each path that cannot be read.
    """

    files: tuple[Path, ...]
    errors: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


class TooManyFilesError(Exception):
    """A search found more files and folders than allowed."""


def discover(paths: Iterable[Path], settings_of: SettingsOf, most: int | None = None) -> Discovery:
    """Find the scripts and notebooks under `paths`; a file given by name is always included.

    Raises `TooManyFilesError` if there are more than `most` files and folders.
    """
    search = _Search(settings_of, most)
    for path in paths:
        search.add(path)
    return Discovery(search.unique(), tuple(search.errors), tuple(search.folders))


class _Search:
    """One walk over the paths of a run."""

    def __init__(self, settings_of: SettingsOf, most: int | None) -> None:
        self.settings_of = settings_of
        self.most = most
        self.found: dict[str, tuple[bool, str]] = {}
        """For each path, whether it is a link, and the real path."""
        self.errors: list[str] = []
        self.folders: list[str] = []
        self.patterns: dict[int, Patterns] = {}

    def add(self, path: Path) -> None:
        """Add a path of the command line."""
        try:
            mode = path.stat().st_mode
        except OSError as error:
            self.errors.append(_out_of_reach(path, error))
            return
        settings = self.settings_of(str(path))
        if settings.force_exclude and self._excluded_with_parents(path, settings):
            return
        if stat.S_ISDIR(mode):
            self._walk(str(path), settings)
        elif not stat.S_ISREG(mode):
            self.errors.append(f"{path} is not a regular file")
        elif path.suffix != ".pyi":
            self.found[str(path)] = (path.is_symlink(), os.path.realpath(path))

    def unique(self) -> tuple[Path, ...]:
        """Return each file once; prefer the file itself over links to it."""
        by_place: dict[str, str] = {}
        for path, (_, place) in sorted(self.found.items(), key=_links_last):
            by_place.setdefault(place, path)
        part_by_part = sorted(by_place.values(), key=lambda path: path.replace(os.sep, "\0"))
        return tuple(map(Path, part_by_part))

    def _walk(self, top: str, settings: Settings) -> None:
        """Collect the files below a folder; links to folders are not followed.

        Links to files outside of the folder and the project are not followed either, so that a
        foreign repository cannot point torchlint at other files.
        """
        homes = (os.path.realpath(top), os.path.realpath(settings.root))
        ignored = Ignored.above(top) if settings.respect_gitignore else Ignored()
        folders = [(top, homes[0], ignored)]
        while folders:
            folder, place, ignored = folders.pop()
            try:
                with os.scandir(folder) as scan:
                    entries = sorted(scan, key=lambda entry: entry.name)
            except OSError as error:
                self.errors.append(_out_of_reach(Path(folder), error))
                continue
            self.folders.append(folder)
            settings = self.settings_of(folder)
            if settings.respect_gitignore and any(entry.name == ".gitignore" for entry in entries):
                ignored = ignored.below(folder)
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not self._left_out(entry, True, settings, ignored):
                        below = os.path.join(place, entry.name)  # noqa: PTH118
                        folders.append((entry.path, below, ignored))
                elif entry.name.endswith((".py", ".ipynb")) and _stays_in(entry, homes):
                    self._take(entry, place, settings, ignored)
            if self.most is not None and len(self.folders) + len(self.found) > self.most:
                raise TooManyFilesError(top)

    def _take(
        self, entry: os.DirEntry[str], folder: str, settings: Settings, ignored: Ignored
    ) -> None:
        if self._left_out(entry, False, settings, ignored):
            return
        path = os.path.normpath(entry.path)
        try:
            mode = entry.stat().st_mode
        except OSError as error:
            if not entry.is_symlink():  # what editors lock files with are links to nowhere
                self.errors.append(_out_of_reach(Path(path), error))
            return
        if stat.S_ISREG(mode):
            is_link = entry.is_symlink()
            place = os.path.realpath(path) if is_link else os.path.join(folder, entry.name)  # noqa: PTH118
            self.found[path] = (is_link, place)

    def _left_out(
        self, entry: os.DirEntry[str], is_folder: bool, settings: Settings, ignored: Ignored
    ) -> bool:
        if self._excluding(settings).match(entry.path):
            return True
        return settings.respect_gitignore and ignored.match(entry.path, is_folder)

    def _excluding(self, settings: Settings) -> Patterns:
        if id(settings) not in self.patterns:
            self.patterns[id(settings)] = excluded_by(settings)
        return self.patterns[id(settings)]

    def _excluded_with_parents(self, path: Path, settings: Settings) -> bool:
        absolute = path.absolute()
        inside = [each for each in absolute.parents if each.is_relative_to(settings.root)]
        patterns = self._excluding(settings)
        return any(patterns.match(str(each)) for each in (absolute, *inside))


def _links_last(found: tuple[str, tuple[bool, str]]) -> tuple[bool, str]:
    path, (is_link, _) = found
    return is_link, path


def _stays_in(entry: os.DirEntry[str], homes: tuple[str, ...]) -> bool:
    """Return whether a file, with links resolved, lies in one of these folders."""
    if not entry.is_symlink():
        return True
    target = os.path.realpath(entry.path)
    return any(target.startswith(os.path.join(home, "")) for home in homes)  # noqa: PTH118


def _out_of_reach(path: Path, error: OSError) -> str:
    if path.is_symlink() and not path.exists():
        return f"{path} is a link to {os.readlink(path)}, which does not exist"  # noqa: PTH115
    if isinstance(error, FileNotFoundError):
        return f"{path} does not exist"
    return f"{path} cannot be read: {error.strerror}"
