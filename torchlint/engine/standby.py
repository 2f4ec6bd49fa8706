"""A process that gets ready to analyse files while another finds out which there are."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NoReturn, TypeVar

# What both processes need is imported before there are two.
import torchlint.engine.patterns
import torchlint.engine.relevance  # noqa: F401
from torchlint.engine.jobs import Done, Work
from torchlint.engine.processes import Died, can_fork, fork, processors
from torchlint.engine.results import FileResult, FixResult
from torchlint.registry import RegistryError, RuleHead

__all__ = ["Standby"]

R = TypeVar("R", FileResult, FixResult)


class Standby:
    """A forked process that imports what analysing takes, and then does the work that it is given.

    It has no file of its own open but standard error, and ends with the process that started it.
    """

    def __init__(self) -> None:
        wanted, orders = os.pipe()
        self._results, into = os.pipe()
        self._expects = False
        self._left: dict[int, None] = {}
        """The jobs that are not done, by their numbers."""
        self.is_working = False
        """Whether it was given work."""
        self.pid = fork()
        """The process, 0 when there is none any more."""
        if self.pid == 0:
            os.close(orders)
            os.close(self._results)
            _serve(wanted, into)
        self._orders = os.fdopen(orders, "wb")
        os.close(wanted)
        os.close(into)

    @classmethod
    def start(cls) -> Standby | None:
        """Start one, unless it would be in the way of this process, or the system gives none."""
        with contextlib.suppress(OSError):
            return cls() if processors() > 1 and can_fork() else None
        return None

    def expect(self, rules: Iterable[RuleHead]) -> None:
        """Have these rules imported, once, while this process finds out what to do with them."""
        self._tell(tuple(rules))
        self._expects = True

    def results(self, work: Work[R], processes: int | None) -> Iterator[tuple[int, Done[R]]]:
        """Have the work done; give the result of each job when it has come.

        What a process that died did not get done is done here, but for a file whose time was up.
        """
        self.is_working = True
        self._left = dict.fromkeys(range(len(work.jobs)))
        if not self._expects:
            self.expect(())
        self._tell((work, processes))
        return self._received(work, processes)

    def _tell(self, order: Any) -> None:
        """Hand over an order; nothing happens where nobody is left to take it."""
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(order, self._orders, pickle.HIGHEST_PROTOCOL)
            self._orders.flush()

    def _received(self, work: Work[R], processes: int | None) -> Iterator[tuple[int, Done[R]]]:
        left = self._left
        with os.fdopen(self._results, "rb") as stream:
            while left:
                try:
                    number, packed = pickle.load(stream)
                except (EOFError, pickle.UnpicklingError):
                    break
                del left[number]
                yield number, pickle.loads(packed)
        from torchlint.engine.timelimit import FINAL

        if left and (died := self._end()).signal == FINAL:
            number = next(iter(left))
            del left[number]
            yield number, work.lost(number, died)
        if left:
            yield from work.results(processes, tuple(left))

    def dismiss(self) -> None:
        """End the process, where it has not ended by itself."""
        if not self.pid:
            return
        if self._left or not self.is_working:
            os.kill(self.pid, signal.SIGTERM if self.is_working else signal.SIGKILL)
        self._end()

    def _end(self) -> Died:
        """Wait for the end of the process."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return Died.of(status)


def _serve(wanted: int, into: int) -> NoReturn:
    """Be the process on standby, and leave it, whatever happens."""
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        _let_go_of_streams()
        import torchlint.engine.checking
        import torchlint.semantic.script  # noqa: F401

        with os.fdopen(wanted, "rb") as orders, os.fdopen(into, "wb") as results:
            _do(orders, results)
        status = 0
    finally:
        os._exit(status)


def _let_go_of_streams() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)


def _do(orders: BinaryIO, results: BinaryIO) -> None:
    """Do what is ordered, nothing if whoever could has gone."""
    try:
        for head in pickle.load(orders):
            with contextlib.suppress(RegistryError):
                head.load()
        work, processes = pickle.load(orders)
    except EOFError:
        return
    for each in work.packed(processes):
        pickle.dump(each, results, pickle.HIGHEST_PROTOCOL)
        results.flush()
