"""Fork torchrun and its ranks from one process that has imported torch: that takes seconds.

`start` takes the place of `torchlint.harness.runs.process.start`; run as a program, this file is
the process that forks.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn, cast

from torchlint.harness.child.agent import agent
from torchlint.harness.child.run import end_with_parent, main
from torchlint.harness.runs import forkserver, process
from torchlint.harness.runs.forkserver import Forked

__all__ = ["address", "start"]

_IMPORTED = ("torch", "torch._dynamo", "torch.distributed.run")


def start(
    command: Sequence[str],
    output: Path,
    errors: Path,
    variables: Mapping[str, str],
    verbose: bool,
) -> Forked:
    """Fork what a command starts: a run, or the process of torchrun with its arguments."""
    streams = [str(output), str(errors)]
    if tuple(command[:-1]) == process.COMMAND:
        return _forked(address(), command[-1], streams, variables)
    arguments = command[3:]
    before = arguments[: arguments.index("--no-python") + 1]
    rank = [sys.executable, __file__, "rank", address(), arguments[-1]]
    return _forked(address(), json.dumps([*before, *rank]), streams, variables)


def _forked(
    place: str, order: str, streams: Sequence[str], environment: Mapping[str, str]
) -> Forked:
    request = {"order": order, "streams": streams, "environment": dict(environment)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{place}")
        connection.sendall(json.dumps(request).encode() + b"\n")
        answers = cast("IO[bytes]", connection.makefile("rb", buffering=0))
    return Forked(json.loads(answers.readline())["pid"], answers)


@functools.cache
def address() -> str:
    """Start the process that forks, for all tests of this one, and return where it listens.

    It ends with the thread that starts it: call this in the main one before other threads `start`.
    """
    name = f"torchlint-forks-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(listener.fileno(),),
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )
    atexit.register(server.wait)
    atexit.register(server.kill)
    return name


def _serve(listener: socket.socket) -> NoReturn:
    """Fork a process for each request; between the two, one waits that tells how it ended."""
    end_with_parent()
    for module in _IMPORTED:
        importlib.import_module(module)
    vars(forkserver)["main"] = _become
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listener.accept()
        if os.fork():
            connection.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with connection.makefile("rb") as requests:
            request = json.loads(requests.readline())
        forkserver.serve_one(request, connection.detach())
        os._exit(0)


def _become(order: str) -> NoReturn:
    """Run what is ordered in this process, and exit as a process of its own would."""
    if not order.startswith("["):
        main(order)
    code = 0
    try:
        agent(json.loads(order))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _stand_for_rank(place: str, order: str) -> NoReturn:
    """Fork a rank, hand on the signals that torchrun sends to it, and end as it ends."""
    rank = _forked(place, order, (), os.environ)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: os.kill(rank.pid, number))
    code = rank.wait()
    if code < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        _stand_for_rank(*sys.argv[2:])
    _serve(socket.socket(fileno=int(sys.argv[2])))
