"""What the machine has to work with."""

from __future__ import annotations

import os
import sys

__all__ = ["can_fork", "fork", "processors"]


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
