"""One rank of a launched run: its folder, its output, and how it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from torchlint.harness.child.hosts import ALL_TRACES, exchange_traces
from torchlint.harness.child.overlay import after_import
from torchlint.harness.plan import Task

JOINED: Final = "joined"
"""The file that shows that the script made a process group."""
PID: Final = "pid"

_PATIENCE: Final = 10.0
"""Seconds that a finished rank waits for the others, which may still need what it sent."""


def rank_folder(folder: Path, rank: int) -> Path:
    """Return the folder of a rank of this host."""
    return folder / f"rank-{rank}"


def as_rank(task: Task) -> Task:
    """Return the task of this rank in its own folder, and redirect its output there.

    Only the first rank of each host writes final parameters, since all ranks share them.
    """
    local = int(os.environ["LOCAL_RANK"])
    folder = rank_folder(Path(task.folder), local)
    folder.mkdir(exist_ok=True)
    (folder / PID).write_text(str(os.getpid()), encoding="utf-8")
    if not task.verbose:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o600), number)
    after_import("torch.distributed", lambda: _note_joining(folder))
    return replace(
        task,
        folder=str(folder),
        reference="" if local else task.reference,
        profile="" if int(os.environ["RANK"]) else task.profile,
        recording=_recording(task),
    )


def _recording(task: Task) -> str:
    """Return where this rank records its batches, or where it finds those of all ranks."""
    own = rank_folder(Path(task.recording), int(os.environ["RANK"]))
    if task.mode == "record":
        own.mkdir(exist_ok=True)
    return str(own) if own.is_dir() else task.recording


def _note_joining(folder: Path) -> None:
    """Record when the script makes a process group, under whatever name it calls the function."""
    import_name = "torch.distributed"
    for name in (import_name, f"{import_name}.distributed_c10d"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "init_process_group"):
            _wrap(module, folder)


def _wrap(module: Any, folder: Path) -> None:
    join = module.init_process_group

    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        (folder / JOINED).touch()
        return join(*args, **kwargs)

    module.init_process_group = init_process_group


def exit_code(task: Task, failed: bool) -> int:
    """Wait for the other ranks and return this one's exit code; a failure ends them all."""
    if failed:
        return 1
    ranks = int(os.environ["LOCAL_WORLD_SIZE"])
    own = Path(task.folder)
    traces = [rank_folder(own.parent, rank) / task.trace.name for rank in range(ranks)]
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and not all(trace.exists() for trace in traces):
        time.sleep(0.01)
    several = int(os.environ["GROUP_WORLD_SIZE"]) > 1 and os.environ["LOCAL_RANK"] == "0"
    if several and (own / JOINED).exists() and all(trace.exists() for trace in traces):
        with contextlib.suppress(RuntimeError):
            exchange_traces(own / ALL_TRACES, traces)
    return 0
