"""The limit of CPU time for one file.

CPU time counts, so that neither a loaded machine nor a suspended run uses it up. There are three
ways to stop work that takes longer:

- In the main thread a system timer raises `Overdue` through a signal. Python handles signals
  between bytecode instructions, so code in another language runs to its end.
- In a worker process a second timer kills the process a little later, whatever code it is in, and
  another process takes its place.
- In other threads, as in the language server, there are no signals: a watching thread compares
  the CPU time of the process and raises `Overdue` in the thread.

On systems without such timers there is no limit.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeVar

R = TypeVar("R")

FINAL: Final = getattr(signal, "SIGVTALRM", 0)
"""The signal that kills a process that did not stop in time."""
_AGAIN: Final = 1.0
"""Seconds after which `Overdue` is raised again if something swallowed it."""
_TURN: Final = 0.01
"""Seconds between two looks at the time."""
_GRACE: Final = 2.0
"""Seconds that a process gets to report the timeout itself before it is killed."""


class Overdue(BaseException):
    """The time limit was exceeded; raised at any point of the work.

    Not an `Exception`, so that no handler of ordinary errors catches it.
    """

    rule = ""
    """The code of the rule that was running."""


def within(seconds: float, path: str, work: Callable[[], R], otherwise: Callable[[str], R]) -> R:
    """Return `work()`; if it takes too long, return `otherwise` of the message.

    0 seconds is no limit.
    """
    try:
        with time_limit(seconds):
            return work()
    except Overdue as overdue:
        return otherwise(words(path, seconds, overdue.rule))


def words(path: str, seconds: float, rule: str = "") -> str:
    """Return the message for a file that took too long."""
    unit = "second" if seconds == 1 else "seconds"
    during = f" ({rule} was running)" if rule else ""
    return (
        f"{path} took more than {seconds:g} CPU {unit}{during} and was skipped: exclude it with "
        "`exclude` or raise `file-timeout` (please report)"
    )


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Overdue` in the body if it takes longer; 0 seconds is no limit."""
    if not (seconds and hasattr(signal, "setitimer")):
        yield
        return
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        if armed:
            raise Overdue

    try:
        before = signal.signal(signal.SIGPROF, ring)
    except ValueError:  # not the main thread
        with _limit_of_thread(seconds):
            yield
        return
    signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def end_process_after(seconds: float) -> None:
    """Tell the system to kill this process some time after `seconds` of CPU time."""
    if seconds:
        signal.signal(FINAL, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds + _GRACE)


@contextmanager
def _limit_of_thread(seconds: float) -> Iterator[None]:
    import ctypes
    import threading
    import time

    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    thread = ctypes.c_ulong(threading.get_ident())
    lock = threading.Lock()
    done = threading.Event()
    raised = threading.Event()
    end = time.process_time() + seconds

    def watch() -> None:
        while not done.wait(max(end - time.process_time(), _TURN)):
            if time.process_time() >= end:
                with lock:
                    if not done.is_set():
                        raised.set()
                        raise_in(thread, ctypes.py_object(Overdue))
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    except Overdue:
        raised.clear()
        raise
    finally:
        with lock:
            done.set()
            # Cancel an exception that is still pending, and only then: to cancel where none is
            # pending makes Python 3.11 look for one at every call, for ever under a debugger.
            if raised.is_set():
                raise_in(thread, None)
