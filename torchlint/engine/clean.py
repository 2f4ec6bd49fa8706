"""Files in which nothing was found and that have not been touched since: never read again."""

from __future__ import annotations

import os
import time
from importlib.util import source_hash
from pathlib import Path
from typing import Any, Final

from torchlint.config import Settings
from torchlint.engine.store import Store, context
from torchlint.registry import Registry, Selection
from torchlint.settled import SETTLED

__all__ = ["CleanFiles"]

MOST_FILES: Final = 50_000
"""How many files are remembered: those of the last run first."""


class CleanFiles:
    """Knows files by path, size, times and place on the disk, and that nothing is to say of them.

    Beside the content of a file a result depends on settings, rules and the code of the rules: they
    are part of what is compared.
    """

    def __init__(self, folder: Path, registry: Registry) -> None:
        self._store = Store(folder, registry, "clean")
        self._old = self._store.read()
        self._new: dict[str, list[Any]] = {}
        self._contexts: dict[tuple[int, int], str] = {}
        self._read_before = time.time_ns() - SETTLED

    def suppressed(
        self, path: str, state: os.stat_result, settings: Settings, rules: Selection
    ) -> int | None:
        """Give how many findings comments silence in a file, None if it has to be read."""
        known = self._old.get(path)
        if not isinstance(known, list) or known[1:] != self._look(state, settings, rules):
            return None
        suppressed = known[0]
        if type(suppressed) is not int:
            return None
        self._new[path] = known
        return suppressed

    def remember(
        self,
        path: str,
        state: os.stat_result,
        settings: Settings,
        rules: Selection,
        suppressed: int,
    ) -> None:
        """Note that a file with such a state, taken before it was read, has no findings."""
        if max(state.st_mtime_ns, state.st_ctime_ns) < self._read_before:
            self._new[path] = [suppressed, *self._look(state, settings, rules)]

    def save(self) -> None:
        """Write what is known, unless that is not new."""
        if any(self._old.get(path) is not known for path, known in self._new.items()):
            self._store.write(self._new, self._old, MOST_FILES)

    def _look(self, state: os.stat_result, settings: Settings, rules: Selection) -> list[Any]:
        about = (id(settings), id(rules))
        if about not in self._contexts:
            self._contexts[about] = source_hash(context(settings, rules)).hex()
        return [
            state.st_size,
            state.st_mtime_ns,
            state.st_ctime_ns,
            state.st_ino,
            state.st_dev,
            self._contexts[about],
        ]
