"""What a check looked at and printed, kept for one that would look at the same."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from torchlint.cli.printed import MOST_BYTES, SUFFIX, Command, Printed, Sight
from torchlint.engine.files import DECIDING, Discovery
from torchlint.engine.store import keep, sources_below
from torchlint.registry import Registry, pack_metadata

__all__ = ["Recording", "sight_of"]

_MOST: Final = 8
"""How many texts are kept: those of the last runs."""
_REPOSITORY: Final = ".git"
_EXCLUDED: Final = os.path.join(_REPOSITORY, "info", "exclude")  # noqa: PTH118


class Recording:
    """The record of one run, made of the state in which everything was before it was read."""

    def __init__(self, command: Command, folder: Path, sight: Sight) -> None:
        self._command = command
        self._folder = folder
        self._sight = sight
        self._state = sight.state()

    def keep(self, printed: Printed) -> None:
        """Keep what was printed, unless that is too much or something was touched just now."""
        if not self._sight.settled(self._state):
            return
        data = self._command.record(printed, self._sight, self._state)
        if len(data) <= MOST_BYTES:
            keep(self._folder, self._command.name, data)
            _forget(self._folder)


def sight_of(
    paths: Sequence[Path],
    found: Discovery,
    registry: Registry,
    config_file: Path | None,
    cache_dir: Path,
) -> Sight:
    """Give all that a check of `paths` looks at, which led it to what it `found`.

    The folder in which it keeps what it learns is none of that.
    """
    above = list(dict.fromkeys(_folders_above(paths)))
    own = os.path.abspath(cache_dir)  # noqa: PTH100
    folders = [folder for folder in found.folders if os.path.abspath(folder) != own]  # noqa: PTH100
    read = [
        *sources_below(registry),
        *pack_metadata(),
        *([str(config_file)] if config_file is not None else []),
        *(os.path.join(folder, name) for folder in above for name in (*DECIDING, _EXCLUDED)),  # noqa: PTH118
        *folders,
        *_deciding_in(folders),
        *map(str, found.files),
    ]
    return Sight.over(read, (os.path.join(folder, _REPOSITORY) for folder in above))  # noqa: PTH118


def _folders_above(paths: Sequence[Path]) -> Iterator[str]:
    """Yield paths and all folders above them, as they are written and as they lie."""
    for path in (*paths, Path()):
        for absolute in (path.absolute(), Path(os.path.abspath(path))):  # noqa: PTH100
            yield from map(str, (absolute, *absolute.parents))


def _deciding_in(folders: Iterable[str]) -> Iterator[str]:
    """Yield the files of folders that say what is looked at; one that comes changes its folder."""
    for folder in folders:
        for name in DECIDING:
            file = os.path.join(folder, name)  # noqa: PTH118
            if os.path.lexists(file):
                yield file


def _forget(folder: Path) -> None:
    """Remove all but the last records."""
    with contextlib.suppress(OSError):
        kept = sorted(folder.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime_ns)
        for file in kept[:-_MOST]:
            file.unlink()
