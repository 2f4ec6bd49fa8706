"""The root folder of a project, and the scripts and notebooks below it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from torchlint.program import argumentfiles
from torchlint.program.gitignore import Ignored

MOST_FILES: Final = 5_000
MOST_BYTES: Final = 50_000_000
"""The limits of a project; the files of a larger one are analyzed alone."""

_MARKS: Final = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
"""Files and folders that mark the root of a project."""
_SKIPPED: Final = frozenset(
    "__pycache__ __pypackages__ _build buck-out build dist node_modules site-packages venv".split()
)
"""Names of folders that contain third-party code or generated files."""


class Stamp(NamedTuple):
    """When a file was changed last, in nanoseconds, and how many bytes it has."""

    changed: int
    size: int


class Layout(NamedTuple):
    """The root folder of a project, and where else its modules are looked up.

    `sources` are folders relative to the root, each with its last `/`.
    """

    root: str
    sources: tuple[str, ...] = ()


def project_of(path: str) -> str:
    """Return the root folder of the project that a file belongs to.

    Without a marker it is the current folder if that contains the file, else the file's folder.
    """
    parents = Path(os.path.realpath(path)).parents
    for each in parents:
        if any((each / mark).exists() for mark in _MARKS):
            return str(each)
    here = Path(os.path.realpath(Path.cwd()))
    return str(here if here in parents else parents[0])


class Walk(NamedTuple):
    """The scripts and notebooks below a folder, by path relative to it, and the folders walked.

    `arguments` are the paths of small YAML and JSON files.
    """

    files: dict[str, Stamp]
    folders: tuple[str, ...]
    arguments: tuple[str, ...] = ()


def walk(root: str) -> Walk:
    """Find the scripts and notebooks below a folder.

    Links, hidden folders, virtual environments, folders that git ignores and a copy of torch are
    left out. The search ends after `MOST_FILES` files.
    """
    found: dict[str, Stamp] = {}
    walked: list[str] = []
    arguments: list[str] = []
    folders = [(root, "", Ignored.above(root))]
    while folders and len(found) <= MOST_FILES:
        folder, prefix, ignored = folders.pop()
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        if prefix and ("pyvenv.cfg" in names or is_foreign(prefix, names)):
            continue
        if ".gitignore" in names:
            ignored = ignored.below(folder)
        walked.append(folder)
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                is_skipped = name.startswith(".") or name in _SKIPPED
                if not is_skipped and not ignored.match(entry.path, True):
                    folders.append((entry.path, f"{prefix}{name}/", ignored))
            elif name.endswith((".py", ".ipynb")) and entry.is_file(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                found[prefix + name] = Stamp(state.st_mtime_ns, state.st_size)
            elif _may_hold_arguments(entry) and len(arguments) <= argumentfiles.MOST_FILES:
                arguments.append(prefix + name)
    if len(arguments) > argumentfiles.MOST_FILES:
        arguments.clear()
    return Walk(dict(sorted(found.items())), tuple(sorted(walked)), tuple(sorted(arguments)))


def _may_hold_arguments(entry: os.DirEntry[str]) -> bool:
    return (
        entry.name.endswith((*argumentfiles.ENDINGS, argumentfiles.COMMANDS))
        and entry.is_file(follow_symlinks=False)
        and entry.stat(follow_symlinks=False).st_size <= argumentfiles.MOST_BYTES
    )


def is_foreign(prefix: str, names: Iterable[str]) -> bool:
    """Return whether a folder with these files is the package torch in its own repository.

    Its names keep the meaning that they have for other projects.
    """
    return prefix in ("torch/", "src/torch/") and "__init__.py" in names
