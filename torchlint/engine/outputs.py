"""What earlier runs printed, for a run that would print the same."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from importlib.util import source_hash
from pathlib import Path
from typing import Final, NamedTuple

from torchlint.engine.clean import SETTLED
from torchlint.engine.project import Project
from torchlint.engine.store import Store, context

__all__ = ["Outputs", "Printed"]

MOST_OUTPUTS: Final = 8
"""How many texts are kept: that of the last run first."""
LONGEST: Final = 4_000_000
"""How many characters a text that is kept has at most."""


class Printed(NamedTuple):
    """What a run printed, and whether it found something."""

    text: str
    found: bool


class Outputs:
    """Texts by all that they depend on: the state of every file, settings, rules and reader.

    The state of a file is its size, its times and its place on the disk. The system sets these, so
    a text that came with somebody else's repository is never the one that is looked for.
    """

    def __init__(
        self, folder: Path, project: Project, files: Sequence[Path], reader: object
    ) -> None:
        self._store = Store(folder, project.registry, "printed")
        self._key = _key(project, files, reader)
        self._old = self._store.read() if self._key else {}

    def get(self) -> Printed | None:
        """Give what is to be printed, None where that is not known."""
        known = self._old.get(self._key)
        if not isinstance(known, list) or list(map(type, known)) != [str, bool, str]:
            return None
        text, found, digest = known
        return Printed(text, found) if _digest(text) == digest else None

    def put(self, printed: Printed) -> None:
        """Keep what was printed of the files as they were when this was made."""
        if self._key and len(printed.text) <= LONGEST:
            kept = [*printed, _digest(printed.text)]
            self._store.write({self._key: kept}, self._old, MOST_OUTPUTS)


def _key(project: Project, files: Sequence[Path], reader: object) -> str:
    """Name a run, by nothing where it has no files or one was touched too lately to tell."""
    parts = [repr((os.getcwd(), reader))]  # noqa: PTH109
    contexts: dict[tuple[int, int], int] = {}
    folders: dict[str, int] = {}
    newest = 0
    for file in files:
        name = str(file)
        folder = os.path.dirname(name)  # noqa: PTH120
        if folder not in folders:
            settings, rules = project.settings(file), project.selection(file)
            about = (id(settings), id(rules))
            if about not in contexts:
                contexts[about] = len(contexts)
                parts.append(repr(context(settings, rules)))
            folders[folder] = contexts[about]
        try:
            state = os.stat(name)  # noqa: PTH116
        except OSError:
            return ""
        newest = max(newest, state.st_mtime_ns, state.st_ctime_ns)
        parts.append(
            f"{name}\0{folders[folder]} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns} "
            f"{state.st_ino} {state.st_dev}"
        )
    if not files or newest >= time.time_ns() - SETTLED:
        return ""
    return _digest("\n".join(parts))


def _digest(text: str) -> str:
    return source_hash(text.encode("utf-8", "surrogatepass")).hex()
