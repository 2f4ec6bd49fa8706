"""The files of the cache, and what cached results depend on."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import source_hash
from pathlib import Path
from typing import Any

from torchlint import __version__
from torchlint.config import OF_THE_RUN, Settings
from torchlint.page.files import pack_folder
from torchlint.registry import Registry, Selection


class Store:
    """The cache file for this version of torchlint and of its rules.

    An unreadable file counts as empty, and failures to write are ignored: a cache is never a
    reason to fail. It is JSON, so that the cache in a foreign repository cannot run code.
    """

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.folder = folder
        self.file = folder / f"{_fingerprint(_homes(registry))}.json"

    def read(self) -> dict[str, Any]:
        """Return the entries of the file."""
        try:
            entries = json.loads(self.file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def write(self, new: dict[str, Any], old: dict[str, Any], most: int) -> None:
        """Write at most `most` entries, new ones first."""
        rest = (item for item in old.items() if item[0] not in new)
        kept = dict([*new.items(), *rest][:most])
        keep(self.folder, self.file.name, json.dumps(kept, separators=(",", ":")).encode())


def read_kept(folder: Path, name: str) -> bytes:
    """Return the content of a file of the cache, empty if it cannot be read."""
    try:
        return (folder / name).read_bytes()
    except OSError:
        return b""


def keep(folder: Path, name: str, data: bytes) -> None:
    """Write a file of the cache atomically; ignore failures."""
    from tempfile import mkstemp

    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with (
            contextlib.suppress(FileExistsError),
            (folder / ".gitignore").open("x", encoding="utf-8") as ignore,
        ):
            ignore.write("*\n")
        handle, made = mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(made).replace(folder / name)
        except OSError:
            Path(made).unlink(missing_ok=True)


def sources_below(registry: Registry) -> Iterator[str]:
    """Yield the folders and files that findings depend on: the code of torchlint and of packs."""
    for parent, names in _sources(_homes(registry)):
        yield from (parent, *names)


def context(settings: Settings, rules: Selection) -> bytes:
    """Return what a result depends on besides the file and the code: settings and rules."""
    apart = OF_THE_RUN | {"sources"}
    options = {name: value for name, value in vars(settings).items() if name not in apart}
    return repr((sorted(options.items()), rules.codes, rules.complete)).encode()


def _homes(registry: Registry) -> tuple[str, ...]:
    """Return the package folders of torchlint and of every pack."""
    ours = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
    return (ours, *sorted({pack_folder(head.file) for head in registry.rules}))


@cache
def _fingerprint(homes: tuple[str, ...]) -> str:
    """Return a digest of versions and of the state of every file of code, pages and evidence."""
    state = [repr((__version__, sys.version_info[:3]))]
    for _, names in _sources(homes):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(name)  # noqa: PTH116
                state.append(f"{name} {status.st_mtime_ns} {status.st_size}")
    return source_hash("\n".join(state).encode("utf-8", "surrogateescape")).hex()


@cache
def _sources(homes: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return all folders with their files of code, pages and evidence, in order."""
    return tuple(found for home in homes for found in _sources_in(home))


def _sources_in(home: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for parent, folders, names in os.walk(home):
        folders.sort()
        sources = (name for name in sorted(names) if name.endswith((".py", ".md", ".json")))
        yield parent, tuple(os.path.join(parent, name) for name in sources)  # noqa: PTH118
