"""CPU time and memory of a script and its loader workers."""

from __future__ import annotations

from collections.abc import Iterator

import psutil


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
