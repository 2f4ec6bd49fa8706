"""A process that imports torch once and forks every run, to save the import."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import IO, Any, Final

from torchlint.harness.child.run import end_with_parent, main

_SERVE: Final = (
    "import sys; sys.path[:1] = filter(None, sys.path[:1]); "
    "from torchlint.harness.runs.forkserver import serve; serve(int(sys.argv[1]), sys.argv[2:])"
)

_PATIENCE: Final = 300.0
"""Seconds after which a server, which may still import torch, counts as gone."""
_READY: Final = b"ready\n"
_END = b"\x04"
_READS = 200
"""How many reads get an end of input."""


class ServerGoneError(Exception):
    """The server does not answer, so runs have to start without it."""


class Forked:
    """A forked run, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, answers: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._answers = answers

    def poll(self) -> int | None:
        """Return the exit code, None while the run goes on."""
        return self._await(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raises `subprocess.TimeoutExpired` like `Popen.wait`."""
        code = self._await(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def _await(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._answers], [], [], timeout)[0]:
            line = self._answers.readline()
            self.returncode = json.loads(line)["code"] if line else -9
        return self.returncode


class ForkServer:
    """The server, as the measuring process uses it."""

    def __init__(
        self, modules: Sequence[str], environment: Mapping[str, str], verbose: bool
    ) -> None:
        inherited = standard_input()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(inherited), *modules],
            stdin=subprocess.PIPE,
            pass_fds=(inherited,),
            stdout=subprocess.PIPE,
            stderr=None if verbose else subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            bufsize=0,
        )

    @cached_property
    def ready(self) -> bool:
        """Whether runs can be forked after the imports, for which this waits."""
        answers = self._process.stdout
        assert answers is not None
        return bool(select.select([answers], [], [], _PATIENCE)[0] and answers.readline())

    def start(self, order: Path, streams: Sequence[Path], environment: Mapping[str, str]) -> Forked:
        """Fork a run; `streams` are the files for its output, none for standard error."""
        if not self.ready:
            raise ServerGoneError
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        request = {
            "order": str(order),
            "streams": [str(stream) for stream in streams],
            "environment": dict(environment),
        }
        try:
            requests.write(json.dumps(request).encode() + b"\n")
            if not select.select([answers], [], [], _PATIENCE)[0]:
                raise ServerGoneError
            return Forked(json.loads(answers.readline())["pid"], answers)
        except (OSError, ValueError):
            raise ServerGoneError from None

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def serve(inherited: int, modules: Sequence[str]) -> None:
    """Import the modules, then fork a run for each request, until there are no more.

    Runs get the file `inherited` as their standard input. A process that has several threads or
    has started a device cannot be forked safely and serves nothing.
    """
    end_with_parent()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(inherited, 0)
    os.close(inherited)
    os.dup2(2, 1)
    for module in modules:
        importlib.import_module(module)
    if threading.active_count() > 1 or _has_started_device():
        return
    gc.collect()
    gc.freeze()
    os.write(answers, _READY)
    for line in requests:
        serve_one(json.loads(line), answers)


def _has_started_device() -> bool:
    """Return whether an import has started CUDA, which no fork of the process could use."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def serve_one(request: dict[str, Any], answers: int) -> None:
    """Fork a run, tell its process, wait for its end and tell its exit code."""
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(done)
        os.close(answers)
        for target, path in zip((1, 2), request["streams"], strict=False):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), target)
        os.environ.clear()
        os.environ.update(request["environment"])
        main(request["order"])
    os.close(done)
    os.read(ready, 1)
    os.close(ready)
    os.write(answers, json.dumps({"pid": pid}).encode() + b"\n")
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    os.write(answers, json.dumps({"code": code}).encode() + b"\n")


@cache
def standard_input() -> int:
    """Return a file for the standard input of runs, valid while this process lives.

    Scripts may ask the terminal for its width, but get nothing that the user types.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        with contextlib.suppress(ImportError, OSError):
            return _terminal(os.get_terminal_size(sys.stdin.fileno()))
    return os.open(os.devnull, os.O_RDONLY)


def _terminal(size: os.terminal_size) -> int:
    """Return a terminal of this size on which nothing is typed."""
    import fcntl
    import pty
    import struct
    import termios

    leader, follower = pty.openpty()
    window = struct.pack("HHHH", size.lines, size.columns, 0, 0)
    fcntl.ioctl(follower, termios.TIOCSWINSZ, window)
    settings = termios.tcgetattr(follower)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(follower, termios.TCSANOW, settings)
    os.write(leader, _END * _READS)
    return follower
