"""Recording what a check read and printed, so that the next one can replay it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from torchlint.cli.replay import MOST_BYTES, SUFFIX, Command, Inputs, Output
from torchlint.config.requirement import other_lists
from torchlint.engine.files import DECIDING, Discovery
from torchlint.engine.project import SettingsOf, layout_of
from torchlint.engine.store import keep, sources_below
from torchlint.registry import Registry, pack_metadata

_MOST: Final = 8
"""How many outputs are kept, the latest ones."""
_REPOSITORY: Final = ".git"
_EXCLUDED: Final = os.path.join(_REPOSITORY, "info", "exclude")  # noqa: PTH118


class Recording:
    """The record of one run, with the state of its inputs before they were read.

    `searched` are the folders of which all scripts and notebooks are inputs.
    """

    def __init__(
        self,
        command: Command,
        folder: Path,
        inputs: Inputs,
        searched: Iterable[str],
        settings_of: SettingsOf,
    ) -> None:
        self._settings_of = settings_of
        self._searched = frozenset(map(os.path.realpath, searched))
        self._command = command
        self._folder = folder
        self._inputs = inputs
        self._state = inputs.state()

    def covers_project(self, path: str) -> bool:
        """Return whether all files of the project that a file belongs to are inputs."""
        return layout_of(path, self._settings_of(path)).root in self._searched

    def keep(self, printed: Output) -> None:
        """Store the output, unless it is too long or an input was changed a moment ago."""
        if not self._inputs.is_old_enough(self._state):
            return
        data = self._command.record(printed, self._inputs, self._state)
        if len(data) <= MOST_BYTES:
            keep(self._folder, self._command.name, data)
            _forget(self._folder)


def inputs_of(
    paths: Sequence[Path],
    found: Discovery,
    registry: Registry,
    configurations: Sequence[Path],
    cache_dir: Path,
    linkable: Iterable[str],
) -> Inputs:
    """Return everything that a check of `paths` depends on, given the files `found`.

    `linkable` are the files and folders of the projects. The cache folder is left out.
    """
    above = list(dict.fromkeys(_folders_above(paths)))
    own = os.path.abspath(cache_dir)  # noqa: PTH100
    folders = [folder for folder in found.folders if os.path.abspath(folder) != own]  # noqa: PTH100
    others = [name for name in linkable if os.path.abspath(name) != own]  # noqa: PTH100
    read = [
        *sources_below(registry),
        *pack_metadata(),
        *map(str, configurations),
        *(os.path.join(folder, name) for folder in above for name in (*DECIDING, _EXCLUDED)),  # noqa: PTH118
        *folders,
        *_deciding_in((*above, *folders)),
        *map(str, found.files),
        *others,
    ]
    return Inputs.over(read, (os.path.join(folder, _REPOSITORY) for folder in above))  # noqa: PTH118


def _folders_above(paths: Sequence[Path]) -> Iterator[str]:
    """Yield paths and all folders above them, with and without `..` resolved."""
    for path in (*paths, Path()):
        for absolute in (path.absolute(), Path(os.path.abspath(path))):  # noqa: PTH100
            yield from map(str, (absolute, *absolute.parents))


def _deciding_in(folders: Iterable[str]) -> Iterator[str]:
    """Yield the existing configuration and ignore files of folders."""
    for folder in folders:
        for name in DECIDING:
            file = os.path.join(folder, name)  # noqa: PTH118
            if os.path.lexists(file):
                yield file
        yield from map(str, other_lists(Path(folder)))


def _forget(folder: Path) -> None:
    """Remove all but the latest records."""
    with contextlib.suppress(OSError):
        kept = sorted(folder.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime_ns)
        for file in kept[:-_MOST]:
            file.unlink()
