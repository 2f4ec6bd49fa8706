"""What runs read from: nothing, from a terminal where the user has one."""

from __future__ import annotations

import contextlib
import os
import sys
from functools import cache

__all__ = ["standard_input"]

_END = b"\x04"
_READS = 200
"""How many reads get an end of input, each by its own."""


@cache
def standard_input() -> int:
    """Give a file that runs may have as standard input, for as long as this process lasts.

    Scripts ask the terminal for its width; what the user types is not for them.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        with contextlib.suppress(ImportError, OSError):
            return _terminal(os.get_terminal_size(sys.stdin.fileno()))
    return os.open(os.devnull, os.O_RDONLY)


def _terminal(size: os.terminal_size) -> int:
    """Give a terminal of this size on which nothing is ever typed."""
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
