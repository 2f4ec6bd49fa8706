"""Files in which runs keep what they found, and what that depends on."""

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
from torchlint.registry import Registry, Selection

__all__ = ["Store", "context"]


class Store:
    """A file of what earlier runs of this version of torchlint and of these rules found.

    A file that cannot be read as what it should be counts as empty, and one that cannot be
    written is not: a cache is never a reason to fail. It is JSON, so a cache that came with
    somebody else's repository can run no code.
    """

    def __init__(self, folder: Path, registry: Registry, kind: str = "") -> None:
        self.folder = folder
        packs = tuple(sorted({os.path.dirname(head.file) for head in registry.rules}))  # noqa: PTH120
        self.file = folder / f"{_fingerprint(packs)}{kind and f'-{kind}'}.json"

    def read(self) -> dict[str, Any]:
        """Give what was kept."""
        try:
            entries = json.loads(self.file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def write(self, new: dict[str, Any], old: dict[str, Any], most: int) -> None:
        """Keep so many entries, the new ones first."""
        from tempfile import mkstemp

        rest = (item for item in old.items() if item[0] not in new)
        kept = dict([*new.items(), *rest][:most])
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            ignore = self.folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            handle, name = mkstemp(dir=self.folder, suffix=".tmp")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(kept, file, separators=(",", ":"))
                Path(name).replace(self.file)
            except OSError:
                Path(name).unlink(missing_ok=True)


def context(settings: Settings, rules: Selection) -> bytes:
    """Give all that a result depends on beside the file and the code of the rules."""
    apart = OF_THE_RUN | {"sources"}
    options = {name: value for name, value in vars(settings).items() if name not in apart}
    return repr((sorted(options.items()), rules.codes, rules.complete)).encode()


@cache
def _fingerprint(packs: tuple[str, ...]) -> str:
    """Name what makes results: versions, and the state of every file of code and of evidence."""
    state = [repr((__version__, sys.version_info[:3]))]
    for folder in (os.path.dirname(os.path.dirname(__file__)), *packs):  # noqa: PTH120
        for name, status in _files_below(folder):
            state.append(f"{name} {status.st_mtime_ns} {status.st_size}")
    return source_hash("\n".join(state).encode("utf-8", "surrogateescape")).hex()


def _files_below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".py", ".json")):
                path = os.path.join(parent, name)  # noqa: PTH118
                with contextlib.suppress(OSError):
                    yield path, os.stat(path)  # noqa: PTH116
