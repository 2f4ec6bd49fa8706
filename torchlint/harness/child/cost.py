"""CPU time and memory of a script and its loader workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

_SHORTEST: Final = 0.05
"""Seconds below which the system's counters, which tick a hundred times a second, say little."""

_THREAD: Final = Path("/proc/thread-self/schedstat")
"""Nanoseconds that this thread had a processor, and that it waited for one."""


class Cost:
    """The processes of this run and the resources that they use."""

    def __init__(self) -> None:
        self._own = psutil.Process()

    def cpu_seconds(self) -> float:
        """Return the CPU time of this process and of its workers, ended ones included."""
        own = self._own.cpu_times()
        return float(own.user + own.system) + self.helpers_seconds()

    def helpers_seconds(self) -> float:
        """Return the CPU time of the workers, ended ones included."""
        own = self._own.cpu_times()
        total = own.children_user + own.children_system
        for child in self._workers():
            try:
                times = child.cpu_times()
            except psutil.Error:
                continue
            total += times.user + times.system
        return float(total)

    def helpers(self) -> int:
        """Return the number of workers."""
        return sum(1 for _ in self._workers())

    def memory(self) -> int:
        """Return the memory of this process and of its workers, with shared memory counted once."""
        return self._memory(self._own, *self._workers())

    def workers_memory(self) -> int:
        """Return the memory of the workers alone."""
        return self._memory(*self._workers())

    def _memory(self, *processes: psutil.Process) -> int:
        total = 0
        for process in processes:
            try:
                full = process.memory_full_info()
            except psutil.Error:
                continue
            total += getattr(full, "pss", full.uss)
        return total

    def _workers(self) -> Iterator[psutil.Process]:
        try:
            yield from self._own.children(recursive=True)
        except psutil.Error:
            return


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
