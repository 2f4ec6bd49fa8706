"""Processes: how many there may be, how one begins and how it ended."""

from __future__ import annotations

import os
import signal
import sys

from torchlint.record import Record

__all__ = ["Died", "can_fork", "fork", "processors"]


class Died(Record):
    """What is said of an item on which its process died."""

    how: str
    signal: int = 0
    """The number of the signal that killed it, 0 for none."""

    @classmethod
    def of(cls, status: int) -> Died:
        """Say how a process ended, by what the system says when it is waited for."""
        code = os.waitstatus_to_exitcode(status)
        if code >= 0:
            return cls(f"ended with status {code}")
        return cls(f"was killed by {signal.Signals(-code).name}", -code)


def can_fork() -> bool:
    """Whether this process may fork: not everywhere there is, and not beside other threads."""
    threading = sys.modules.get("threading")
    return hasattr(os, "fork") and (threading is None or threading.active_count() == 1)


def processors() -> int:
    """Give the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fork() -> int:
    """Fork this process, which has one thread; 0 is given to the new one."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
