"""Forking processes: whether and how many, and how one ended."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import NamedTuple


class Died(NamedTuple):
    """How the process ended that worked on an item."""

    how: str
    signal: int = 0
    """The number of the signal that killed it, 0 for none."""

    @classmethod
    def of(cls, status: int) -> Died:
        """Return how a process ended, from the status of `os.waitpid`."""
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return cls(f"ended with status {code}")
        return cls(f"was killed by {signal.Signals(-code).name}", -code)


def can_fork() -> bool:
    """Return whether this process may fork: the system can, and there are no other threads."""
    threading = sys.modules.get("threading")
    return hasattr(os, "fork") and (threading is None or threading.active_count() == 1)


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fork() -> int:
    """Fork this single-threaded process; return 0 in the child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
