"""Work spread over forked processes, one share each, the heaviest first."""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

__all__ = ["Died", "Workers", "can_fork", "processors"]

R = TypeVar("R")


@dataclass(frozen=True)
class Died:
    """What is said of an item on which its process died."""

    how: str


@dataclass
class _Child(Generic[R]):
    pid: int
    items: Sequence[int]
    done: int = 0
    pending: bytearray = field(default_factory=bytearray)


def can_fork() -> bool:
    """Whether this process may fork: not everywhere there is, and not beside other threads."""
    threading = sys.modules.get("threading")
    return hasattr(os, "fork") and (threading is None or threading.active_count() == 1)


def processors() -> int:
    """Give the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers(Generic[R]):
    """Processes that each do `work` on a share of the items; they start at once.

    A process that dies takes down the item that it was at and no other: another process goes on.
    """

    def __init__(self, work: Callable[[int], R], weights: Sequence[int], jobs: int) -> None:
        self.work = work
        self.selector = selectors.DefaultSelector()
        for share in _shares(weights, jobs):
            self._start(share)

    def results(self) -> Iterator[tuple[int, R | Died]]:
        """Yield each item's result as it comes, in no order."""
        try:
            while self.selector.get_map():
                for key, _ in self.selector.select():
                    yield from self._read(key.fd, key.data)
        finally:
            self._stop()

    def _start(self, items: Sequence[int]) -> None:
        if not items:
            return
        out, into = os.pipe()
        pid = _fork()
        if pid == 0:
            os.close(out)
            self._do(items, into)
        os.close(into)
        self.selector.register(out, selectors.EVENT_READ, _Child[R](pid, items))

    def _do(self, items: Sequence[int], into: int) -> None:
        """Do a share and leave the process, whatever happens."""
        status = 1
        try:
            with os.fdopen(into, "wb") as pipe:
                for item in items:
                    data = pickle.dumps(self.work(item), pickle.HIGHEST_PROTOCOL)
                    pipe.write(len(data).to_bytes(8, "little") + data)
                    pipe.flush()
            status = 0
        finally:
            os._exit(status)

    def _read(self, fd: int, child: _Child[R]) -> Iterator[tuple[int, R | Died]]:
        data = os.read(fd, 1 << 20)
        if data:
            child.pending += data
            yield from self._complete(child)
            return
        self.selector.unregister(fd)
        os.close(fd)
        _, status = os.waitpid(child.pid, 0)
        if child.done < len(child.items):
            yield child.items[child.done], Died(_how(status))
            self._start(child.items[child.done + 1 :])

    def _complete(self, child: _Child[R]) -> Iterator[tuple[int, R | Died]]:
        """Yield the results that have come in whole."""
        pending = child.pending
        while len(pending) >= 8:
            end = 8 + int.from_bytes(pending[:8], "little")
            if len(pending) < end:
                return
            result: R = pickle.loads(pending[8:end])
            del pending[:end]
            child.done += 1
            yield child.items[child.done - 1], result

    def _stop(self) -> None:
        """End the processes that are left when nobody wants their results."""
        for key in list(self.selector.get_map().values()):
            self.selector.unregister(key.fd)
            os.close(key.fd)
            os.kill(key.data.pid, signal.SIGTERM)
            os.waitpid(key.data.pid, 0)
        self.selector.close()


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _shares(weights: Sequence[int], jobs: int) -> list[list[int]]:
    """Share items out: the heaviest first, each to the share that has least."""
    shares: list[list[int]] = [[] for _ in range(jobs)]
    loads = [0] * jobs
    for item in sorted(range(len(weights)), key=lambda item: (-weights[item], item)):
        least = loads.index(min(loads))
        shares[least].append(item)
        loads[least] += weights[item] + 1
    return shares


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with status {code}"
    return f"was killed by {signal.Signals(-code).name}"
