"""Processes that a script spawns: they import its main module again, with the overlay."""

from __future__ import annotations

import multiprocessing
import multiprocessing.spawn
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from torchlint.harness.child.overlay import Overlay
from torchlint.harness.child.shadow import Shadow

_TOOL: Final = 4
"""The number under which lines are watched; debuggers and profilers have others."""


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


class Exercise:
    """Writes each line down once when it first runs, so that workers can add theirs."""

    def __init__(self, lines: Mapping[str, Sequence[int]], record: Path) -> None:
        self._left = {os.path.realpath(path): set(each) for path, each in lines.items()}
        self._record = record
        self._names: dict[str, str] = {}

    def watch(self) -> None:
        """Watch the lines from here on, in every thread and every forked process."""
        if not any(self._left.values()):
            return
        if sys.version_info >= (3, 12):
            self._monitor()
        elif sys.gettrace() is None:
            sys.settrace(self._called)
            threading.settrace(self._called)

    def ran(self) -> dict[str, list[int]]:
        """Return the lines that ran, by file."""
        found: dict[str, list[int]] = {}
        if self._record.exists():
            for entry in self._record.read_text(encoding="utf-8").splitlines():
                line, _, path = entry.partition(" ")
                found.setdefault(path, []).append(int(line))
        return found

    def _is_watched(self, name: str) -> bool:
        return self._path(name) in self._left

    def _path(self, name: str) -> str:
        path = self._names.get(name)
        if path is None:
            path = self._names[name] = os.path.realpath(name)
        return path

    def _saw(self, name: str, line: int) -> None:
        path = self._path(name)
        left = self._left.get(path)
        if left is None or line not in left:
            return
        left.discard(line)
        record = os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(record, f"{line} {path}\n".encode())
        os.close(record)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._traced if self._is_watched(frame.f_code.co_filename) else None

    def _traced(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._saw(frame.f_code.co_filename, frame.f_lineno)
        return self._traced

    def _monitor(self) -> None:
        monitoring: Any = vars(sys)["monitoring"]
        if monitoring.get_tool(_TOOL) is not None:
            return

        def reached(code: CodeType, line: int) -> Any:
            self._saw(code.co_filename, line)
            return monitoring.DISABLE

        monitoring.use_tool_id(_TOOL, "torchlint")
        monitoring.register_callback(_TOOL, monitoring.events.LINE, reached)
        monitoring.set_events(_TOOL, monitoring.events.LINE)
