"""Work spread over forked processes, handed out in chunks, what is heavy first."""

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

__all__ = ["Workers"]

R = TypeVar("R")

CHUNKS: Final = 32
"""Which part a chunk is of what each process has left to do: the last ones are small."""
LONGEST: Final = 1_000
"""How many items a chunk has at most: two of them fit into a pipe."""


@dataclass
class _Child(Generic[R]):
    """A process, where it is told what to do, and the items it was given and has not done."""

    pid: int
    tickets: int
    chunks: deque[deque[int]] = field(default_factory=deque)
    pending: bytearray = field(default_factory=bytearray)


class Workers(Generic[R]):
    """Processes that each do `work` on the next items that nobody has; they start at once.

    A process that dies takes down the item that it was at and no other: another process goes on.
    Where the system gives no process any more, items are `left`.
    """

    def __init__(self, work: Callable[[int], R], weights: Sequence[int], jobs: int) -> None:
        self.work = work
        self.selector = selectors.DefaultSelector()
        self.chunks = deque(_chunks(weights, jobs))
        self.children: dict[int, _Child[R]] = {}
        for _ in range(min(jobs, len(self.chunks))):
            self._start()

    def results(self) -> Iterator[tuple[int, R | Died]]:
        """Yield each item's result as it comes, in no order."""
        try:
            while self.children:
                for key, _ in self.selector.select():
                    yield from self._read(key.fd)
        finally:
            self._stop()

    @property
    def left(self) -> list[int]:
        """The items that nobody has."""
        return [item for chunk in self.chunks for item in chunk]

    def _start(self) -> None:
        """Start a process with a chunk to do and another that waits, so that it never idles."""
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
        """Hand out the next chunk; an empty one says that there is none."""
        chunk = self.chunks.popleft() if self.chunks else deque[int]()
        child.chunks.append(chunk)
        with contextlib.suppress(BrokenPipeError):  # what a dead one had is handed out again
            os.write(child.tickets, b"".join(map(_packed, (len(chunk), *chunk))))

    def _do(self, wanted: int, into: int) -> None:
        """Do what is handed out and leave the process, whatever happens."""
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
        """Yield the results that have come in whole."""
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
        """End the processes that are left when nobody wants their results."""
        for out, child in list(self.children.items()):
            self._forget(out)
            os.kill(child.pid, signal.SIGTERM)
            os.waitpid(child.pid, 0)
        self.selector.close()


def _chunks(weights: Sequence[int], jobs: int) -> Iterator[deque[int]]:
    """Yield the items in chunks, each of which weighs a part of all that come after it.

    What is heavier than the first chunk should be is at the very front, the heaviest first, so that
    all processes end together. The rest keeps its order: whoever takes results in order can begin
    early.
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
    """Read one chunk, an empty one where whoever hands them out is gone."""
    count = int.from_bytes(tickets.read(4), "little")
    numbers = tickets.read(4 * count)
    return [int.from_bytes(numbers[at : at + 4], "little") for at in range(0, len(numbers), 4)]


def _packed(number: int) -> bytes:
    return number.to_bytes(4, "little")
