"""Forked worker processes that get work in chunks, the heaviest items first."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, Generic, TypeVar

from torchlint.engine.processes import Died, fork

R = TypeVar("R")

CHUNKS: Final = 32
"""A chunk is this fraction of each process's share of the remaining work, so the last are small."""
LONGEST: Final = 1_000
"""The largest number of items in a chunk; two chunks fit into a pipe's buffer."""


@dataclass
class _Child(Generic[R]):
    """A worker process: its pipe for orders, and the items assigned but not done."""

    pid: int
    tickets: int
    chunks: deque[deque[int]] = field(default_factory=deque)
    pending: bytearray = field(default_factory=bytearray)


class Workers(Generic[R]):
    """Processes that do `work` on items, chunk by chunk; they start at once.

    A process that dies loses only the item it was working on: a new process does the rest.
    If the system cannot start processes any more, the remaining items are in `left`.
    """

    def __init__(self, work: Callable[[int], R], weights: Sequence[int], jobs: int) -> None:
        self.work = work
        self.selector = selectors.DefaultSelector()
        self.chunks = deque(_chunks(weights, jobs))
        self.children: dict[int, _Child[R]] = {}
        for _ in range(min(jobs, len(self.chunks))):
            self._start()

    def results(self) -> Iterator[tuple[int, R | Died]]:
        """Yield item and result as they come, in no particular order."""
        try:
            while self.children:
                for key, _ in self.selector.select():
                    yield from self._read(key.fd)
        finally:
            self._stop()

    @property
    def left(self) -> list[int]:
        """The items that no process has been given."""
        return [item for chunk in self.chunks for item in chunk]

    def _start(self) -> None:
        """Start a process with two chunks, so that it never waits for work."""
        out, into = os.pipe()
        wanted, tickets = os.pipe()
        try:
            pid = fork()
        except OSError:
            for end in (out, into, wanted, tickets):
                os.close(end)
            return
        if pid == 0:
            for end in (out, tickets, *(child.tickets for child in self.children.values())):
                os.close(end)
            self._do(wanted, into)
        os.close(into)
        os.close(wanted)
        self.children[out] = child = _Child[R](pid, tickets)
        self.selector.register(out, selectors.EVENT_READ)
        self._give(child)
        self._give(child)

    def _give(self, child: _Child[R]) -> None:
        """Send the next chunk to a process; an empty one means that there is no more."""
        chunk = self.chunks.popleft() if self.chunks else deque[int]()
        child.chunks.append(chunk)
        with contextlib.suppress(
            BrokenPipeError
        ):  # the chunks of a dead process are assigned again
            os.write(child.tickets, b"".join(map(_packed, (len(chunk), *chunk))))

    def _do(self, wanted: int, into: int) -> None:
        """Do the assigned items in the child process, then exit it."""
        status = 1
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            with os.fdopen(wanted, "rb") as tickets, os.fdopen(into, "wb") as pipe:
                while chunk := _chunk(tickets):
                    for item in chunk:
                        data = pickle.dumps(self.work(item), pickle.HIGHEST_PROTOCOL)
                        pipe.write(len(data).to_bytes(8, "little") + data)
                        pipe.flush()
            status = 0
        finally:
            os._exit(status)

    def _read(self, out: int) -> Iterator[tuple[int, R | Died]]:
        child = self.children[out]
        data = os.read(out, 1 << 20)
        if data:
            child.pending += data
            yield from self._complete(child)
            return
        self._forget(out)
        _, status = os.waitpid(child.pid, 0)
        left = [chunk for chunk in child.chunks if chunk]
        if left:
            yield left[0].popleft(), Died.of(status)
            self.chunks.extendleft(chunk for chunk in reversed(left) if chunk)
        if self.chunks:
            self._start()

    def _complete(self, child: _Child[R]) -> Iterator[tuple[int, R | Died]]:
        """Yield the results that have arrived completely."""
        pending = child.pending
        while len(pending) >= 8:
            end = 8 + int.from_bytes(pending[:8], "little")
            if len(pending) < end:
                return
            result: R = pickle.loads(pending[8:end])
            del pending[:end]
            item = child.chunks[0].popleft()
            if not child.chunks[0]:
                child.chunks.popleft()
                self._give(child)
            yield item, result

    def _forget(self, out: int) -> None:
        self.selector.unregister(out)
        os.close(out)
        os.close(self.children.pop(out).tickets)

    def _stop(self) -> None:
        """Terminate the remaining processes."""
        for out, child in list(self.children.items()):
            self._forget(out)
            os.kill(child.pid, signal.SIGTERM)
            os.waitpid(child.pid, 0)
        self.selector.close()


def _chunks(weights: Sequence[int], jobs: int) -> Iterator[deque[int]]:
    """Yield the items in chunks, each a fixed fraction of the remaining weight.

    Items heavier than the first chunk come first, the heaviest in front, so that all processes end
    at about the same time. The others keep their order, so that results can be used early.
    """
    left = sum(weights)
    most = left / (jobs * CHUNKS)
    chunk, weight = deque[int](), 0
    for item in sorted(range(len(weights)), key=lambda item: (min(most - weights[item], 0), item)):
        if chunk and (weight + weights[item] > left / (jobs * CHUNKS) or len(chunk) == LONGEST):
            yield chunk
            left -= weight
            chunk, weight = deque[int](), 0
        chunk.append(item)
        weight += weights[item]
    if chunk:
        yield chunk


def _chunk(tickets: BinaryIO) -> list[int]:
    """Read one chunk; it is empty if the parent process has exited."""
    count = int.from_bytes(tickets.read(4), "little")
    numbers = tickets.read(4 * count)
    return [int.from_bytes(numbers[at : at + 4], "little") for at in range(0, len(numbers), 4)]


def _packed(number: int) -> bytes:
    return number.to_bytes(4, "little")
