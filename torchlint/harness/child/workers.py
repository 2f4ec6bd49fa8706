"""Processes that a script spawns: they import its main module again, with the overlay."""

from __future__ import annotations

import multiprocessing
import multiprocessing.spawn
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from torchlint.harness.child.exercise import Exercise
from torchlint.harness.child.overlay import Overlay
from torchlint.harness.child.shadow import Shadow


@dataclass
class SpawnSetup:
    """What a spawned process sets up before it imports the user's main module."""

    overlay: Overlay
    shadow: Path
    roots: tuple[Path, ...]
    exercise: Exercise

    def set_up(self) -> Overlay:
        """Install the overlay in this process, and divert what it writes."""
        self.overlay.install()
        Shadow(self.shadow, self.roots).install()
        self.exercise.watch()
        return self.overlay


class _Preparation(dict[str, Any]):
    """Preparation data that sets up the setup when it is unpickled."""

    setup: SpawnSetup

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, (self.setup, dict(self))


def _unpack(setup: SpawnSetup, data: dict[str, Any]) -> dict[str, Any]:
    """Set up the setup in a spawned process, and return its preparation data."""
    overlay = setup.set_up()

    def run_main(path: str) -> None:
        if not getattr(sys.modules["__main__"], "__torchlint__", False):
            overlay.run(path, "__mp_main__").__dict__["__torchlint__"] = True

    setattr(multiprocessing.spawn, "_fixup_main_from_path", run_main)  # noqa: B010 - replaced
    return data


def pass_to_spawned(setup: SpawnSetup, notice: Callable[[], None]) -> None:
    """Make every process that is spawned from here set up the setup.

    `notice` is called when the script starts a process that is not a daemon.
    """
    prepare = multiprocessing.spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        data = _Preparation(prepare(name))
        data.setup = setup
        return data

    multiprocessing.spawn.get_preparation_data = get_preparation_data
    multiprocessing.set_forkserver_preload([])
    start = BaseProcess.start

    def noticed(process: BaseProcess) -> None:
        if not process.daemon:
            notice()
        start(process)

    setattr(BaseProcess, "start", noticed)  # noqa: B010 - a method is replaced
