"""The user's project on disk: its folder, and changes to its files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

_MARKS: Final = (".git", "pyproject.toml", "setup.py", "setup.cfg", ".hg")
_MOST: Final = 20_000
"""No more files than this are watched: a folder of images is no source tree."""

Snapshot = dict[str, tuple[int, int]]


def project_root(script: Path) -> Path:
    """Return the nearest folder above the script that looks like a project, else its own."""
    home = script.resolve().parent
    for folder in (home, *home.parents):
        if any((folder / mark).exists() for mark in _MARKS):
            return folder
    return home


def snapshot(root: Path, apart: Path) -> Snapshot:
    """Return time and size of the project's files, without the folder `apart`."""
    files = islice(_files(root, os.path.realpath(apart)), _MOST)
    return {path: state for path in files if (state := _state(path))}


def changes(before: Snapshot, root: Path, apart: Path) -> tuple[str, ...]:
    """Return the files written, created or removed since `before`, relative to `root`."""
    after = snapshot(root, apart)
    whole = len(before) < _MOST and len(after) < _MOST
    paths = before.keys() | after.keys() if whole else before.keys() & after.keys()
    changed = {path for path in paths if before.get(path) != after.get(path)}
    return tuple(sorted(os.path.relpath(path, root) for path in changed))


def shown(paths: Iterable[str], root: Path) -> tuple[str, ...]:
    """Return paths for display: relative to the project where they lie in it."""
    inside = str(root) + os.sep
    return tuple(sorted(path.removeprefix(inside) for path in paths))


def _files(root: Path, apart: str) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if name[0] != "." and name != "__pycache__" and os.path.join(folder, name) != apart
        )
        for name in sorted(files):
            yield os.path.join(folder, name)


def _state(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
