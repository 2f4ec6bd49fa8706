from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from types import TracebackType

from cli_shell import Shell
from processes import interruptible

PATIENCE = 60.0
"""Seconds after which a program that does not answer is given up."""

_PRESSES = 6


class Terminal:
    """A terminal of its own in which torchlint runs, with somebody who reads and types."""

    def __init__(
        self, shell: Shell, *arguments: str, columns: int = 80, **environment: str
    ) -> None:
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torchlint", *arguments],
            cwd=shell.folder,
            env=shell.environment(TERM="xterm"),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=interruptible,
        )
        os.close(follower)
        self._written = b""
        self._read = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._leader)

    @property
    def shown(self) -> str:
        """All that has been written on the terminal so far."""
        return self._written.decode()

    def wait_for(self, text: str) -> str:
        """Read until `text` is written, and give what came with it since the last time."""
        wanted = text.encode()
        while (found := self._written.find(wanted, self._read)) < 0:
            assert self._more(), f"{text!r} does not come after {self._written[self._read :]!r}"
        begin, self._read = self._read, found + len(wanted)
        return self._written[begin : self._read].decode()

    def type(self, text: str) -> None:
        """Type on the keyboard."""
        os.write(self._leader, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, again where nothing happens.

        Python looks at a signal that comes just before a read only once the read has ended.
        """
        for _ in range(_PRESSES):
            os.killpg(self._process.pid, signal.SIGINT)
            if select.select([self._leader], [], [], PATIENCE / _PRESSES)[0]:
                return

    def end(self) -> tuple[int, str]:
        """Wait for the end; give the exit code and what was written since the last time."""
        while self._more():
            pass
        return self._process.wait(PATIENCE), self._written[self._read :].decode()

    def _more(self) -> bool:
        """Read what there is, as soon as there is something; False at the end."""
        ready, _, _ = select.select([self._leader], [], [], PATIENCE)
        assert ready, f"nothing comes after {self._written[self._read :]!r}"
        with contextlib.suppress(OSError):
            part = os.read(self._leader, 65536)
            self._written += part
            return bool(part)
        return False
