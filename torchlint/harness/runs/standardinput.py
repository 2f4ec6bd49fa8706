"""The standard input of runs: empty, and a terminal where the user has one."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache

_END = b"\x04"
_READS = 200
"""How many reads get an end of input."""


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
