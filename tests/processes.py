"""Processes that a test starts: each ends with its test, and none is waited for without a limit."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import AnyStr

__all__ = ["PATIENCE", "interruptible", "on_terminal", "stopped"]

PATIENCE = 120.0
"""Seconds after which a process that a test talks to is killed, which ends every wait for it."""


@contextmanager
def stopped(
    process: subprocess.Popen[AnyStr], seconds: float = PATIENCE
) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kill a process and close its pipes at the end, and kill it before if it takes too long."""
    watchdog = Timer(seconds, process.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def interruptible() -> None:
    """Undo what a shell does to commands in the background, and all that these start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def on_terminal(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Run a program on a terminal of its own; return its exit code and what it wrote there."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    written = b""
    with stopped(process), os.fdopen(leader, "rb", buffering=0) as screen:
        # Reading fails once the program has ended.
        with suppress(OSError):
            while part := screen.read(65536):
                written += part
        return process.wait(), written
