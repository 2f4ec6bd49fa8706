"""How busy other programs keep the machine while a window is timed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import psutil

from torchlint.harness.child.cost import Cost

_SHORTEST: Final = 0.05
"""Seconds below which the system's counters, which tick a hundred times a second, say little."""

_THREAD: Final = Path("/proc/thread-self/schedstat")
"""Nanoseconds that this thread had a processor, and that it waited for one."""


def seconds_at_rest() -> float | None:
    """Return a clock that runs while this thread neither uses a processor nor waits for one.

    None where the system does not tell.
    """
    try:
        used, waited, _ = map(int, _THREAD.read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return None
    return time.perf_counter() - (used + waited) / 1e9


class Load:
    """The processors from here on: what this run uses of them, and what others do."""

    def __init__(self) -> None:
        self._cost = Cost()
        self._began = self._now()

    def since(self) -> tuple[float, float] | None:
        """Return the processors that others used and that were free, None in a short time."""
        now = self._now()
        own, idle, total, wall = (
            after - before for after, before in zip(now, self._began, strict=True)
        )
        if wall < _SHORTEST:
            return None
        return max(0.0, total - idle - own) / wall, idle / wall

    def _now(self) -> tuple[float, float, float, float]:
        times = psutil.cpu_times()._asdict()
        counted = {name: value for name, value in times.items() if "guest" not in name}
        idle = counted["idle"] + counted.get("iowait", 0.0)
        return self._cost.cpu_seconds(), idle, sum(counted.values()), time.perf_counter()
