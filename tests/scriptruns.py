"""Run scripts in forks of a process that has imported torch, which saves the import for each.

`ScriptServer` is for the tests; run as a program, this file is the process that forks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from processes import stopped

__all__ = ["Job", "ScriptServer"]

SECONDS = 300
"""Seconds after which a script is killed, such as one that waits for a process that has failed."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Job:
    """A script to run as `python SCRIPT ARGUMENTS` in a folder."""

    script: str
    folder: str
    arguments: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)


class ScriptServer:
    """The process that forks, one job or several jobs at a time."""

    def __init__(self, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=os.environ | ENVIRONMENT | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> ScriptServer:
        return self

    def __exit__(self, *_: object) -> None:
        with stopped(self._process):
            self._process.communicate()

    def run(self, *jobs: Job) -> list[subprocess.CompletedProcess[str]]:
        """Run jobs at the same time, and return how each ended."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        with tempfile.TemporaryDirectory() as room:
            streams = [
                (Path(room, f"{at}.out"), Path(room, f"{at}.err")) for at in range(len(jobs))
            ]
            orders = [
                {**asdict(job), "streams": list(map(str, pair))}
                for job, pair in zip(jobs, streams, strict=True)
            ]
            requests.write(json.dumps(orders) + "\n")
            requests.flush()
            codes = json.loads(answers.readline())
            return [
                subprocess.CompletedProcess(
                    job.script, code, *(path.read_text(encoding="utf-8") for path in pair)
                )
                for job, code, pair in zip(jobs, codes, streams, strict=True)
            ]


def _import_ahead() -> None:
    """Import what the first step of a training imports."""
    torch = importlib.import_module("torch")
    importlib.import_module("numpy")
    torch.set_num_threads(1)
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(layer.parameters())
    layer(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    gc.collect()
    gc.freeze()


def _become(order: dict[str, Any]) -> NoReturn:
    """Run a script as the main module of this process."""
    os.setsid()
    signal.alarm(SECONDS)
    for target, path in zip((1, 2), order["streams"], strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), target)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    script = order["script"]
    sys.argv = [script, *order["arguments"]]
    sys.path[0] = str(Path(script).parent)
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    code: object = None
    try:
        exec(compile(Path(script).read_bytes(), script, "exec", dont_inherit=True), vars(main))
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    _end(main, code or 0)


def _end(main: types.ModuleType, code: int) -> NoReturn:
    """End as an interpreter does, but for what the process had before the fork: that takes longer.

    It waits for threads, calls the exit handlers and drops the objects of the script.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    vars(main).clear()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fork(order: dict[str, Any]) -> int:
    process = os.fork()
    if not process:
        _become(order)
    return process


def serve() -> None:
    """Fork a process for each job of a line; answer with a line of exit codes."""
    _import_ahead()
    for line in sys.stdin:
        processes = [_fork(order) for order in json.loads(line)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        sys.stdout.write(json.dumps(codes) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve()
