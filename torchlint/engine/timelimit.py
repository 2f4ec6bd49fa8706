"""The time that the work on one file may take.

What counts is the time of the processor, so that neither a loaded machine nor a run that was
stopped for a while uses it up. Three things end work that takes more, each where it can:

- In the main thread of a process a timer of the system raises `Overdue` through a signal. Python
  sees signals between two of its own steps, so code in another language is left to its end.
- A process of `Workers` has nothing to lose but the file it is at: a second timer ends it a while
  later, in whatever code it is, and another process takes its place.
- In another thread, as in the language server, there are no signals: a third thread looks at what
  the process has computed meanwhile, and raises `Overdue` there.

Where a system has no such timers there is no limit.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeVar

__all__ = ["FINAL", "Overdue", "end_process_after", "time_limit", "within", "words"]

R = TypeVar("R")

FINAL: Final = getattr(signal, "SIGVTALRM", 0)
"""The signal that ends a process whose work would not end."""
_AGAIN: Final = 1.0
"""Seconds after which `Overdue` is raised again where something swallowed it."""
_TURN: Final = 0.01
"""Seconds between two looks at the time."""
_GRACE: Final = 2.0
"""Seconds that a process has to say by itself that its time was up."""


class Overdue(BaseException):
    """The time is up: raised wherever the work happens to be.

    No `Exception`, so that nothing takes it for a failure of its own.
    """

    rule = ""
    """The code of the rule that was at work."""


def within(seconds: float, path: str, work: Callable[[], R], otherwise: Callable[[str], R]) -> R:
    """Give what `work` gives, or what `otherwise` makes of the line that says it took too long.

    0 seconds are no limit.
    """
    try:
        with time_limit(seconds):
            return work()
    except Overdue as overdue:
        return otherwise(words(path, seconds, overdue.rule))


def words(path: str, seconds: float, rule: str = "") -> str:
    """Say that a file was given up."""
    unit = "second" if seconds == 1 else "seconds"
    during = f" ({rule} was at work)" if rule else ""
    return (
        f"{path} was given up after {seconds:g} {unit}{during}: leave it out with `exclude`, or "
        "allow it more with `file-timeout`; please report"
    )


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Overdue` in what takes longer; 0 seconds are no limit."""
    if not (seconds and hasattr(signal, "setitimer")):
        yield
        return
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        if armed:
            raise Overdue

    try:
        before = signal.signal(signal.SIGPROF, ring)
    except ValueError:  # this is not the main thread
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
    """Let the system end this process when what it does next goes on for long after its time."""
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
    end = time.process_time() + seconds

    def watch() -> None:
        while not done.wait(max(end - time.process_time(), _TURN)):
            if time.process_time() >= end:
                with lock:
                    if not done.is_set():
                        raise_in(thread, ctypes.py_object(Overdue))
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            done.set()
            raise_in(thread, None)  # nothing that is on its way arrives in what comes after
