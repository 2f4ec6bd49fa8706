"""How the program starts and how it ends."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NoReturn

from torchlint.cli.ends import INTERRUPTED, READER_GONE
from torchlint.cli.printed import Command

if TYPE_CHECKING:
    from torchlint.cli.invocation import Invocation
    from torchlint.engine.standby import Standby

__all__ = ["main"]

_ALLOCATIONS: Final = 300_000
_ANALYSING: Final = (["check"], ["fix"])
_ALONE: Final = {"-", "--interactive", "--watch", "--jobs=1", ("--jobs", "1")}
"""What says that one process does all: words of a command line, and pairs of them."""
_DEPTH: Final = 5_000
"""How deep calls may go: questions about names lead from one to the next, file-long."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and leave with its exit code."""
    # A syntax tree is many objects that live and die together: looking for dead ones is in vain.
    gc.set_threshold(_ALLOCATIONS, 20, 20)
    sys.setrecursionlimit(_DEPTH)
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _again() if arguments is None else _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = READER_GONE
    except OSError as error:
        from torchlint.cli.failure import fail

        fail(f"the output cannot be written: {error.strerror}")
        code = 2
    if arguments is None:
        _leave(code)
    sys.exit(code)


def _open_what_is_closed() -> None:
    """Give a program that was started without some of its three streams empty ones.

    Else the next file that is opened would take the number of a stream, and get what is printed.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _again() -> int:
    """Print what this very command printed before, or run it; give the exit code."""
    command = Command.given()
    printed = command.printed(command.folder) if command is not None else None
    if printed is None:
        return _anew(command)
    sys.stdout.write(printed.text)
    return printed.code


def _anew(command: Command | None) -> int:
    """Run the command; while this process finds out what to do another gets ready to do it."""
    from torchlint.cli.invocation import Invocation
    from torchlint.cli.lean import expect_libcst

    expect_libcst()
    standby = _standby()
    try:
        return _run(None, Invocation(command, standby))
    finally:
        if standby is not None:
            standby.dismiss()


def _standby() -> Standby | None:
    words = sys.argv[1:]
    if words[:1] not in _ANALYSING or not _ALONE.isdisjoint((*words, *pairwise(words))):
        return None
    from torchlint.engine.standby import Standby

    return Standby.start()


def _run(arguments: Sequence[str] | None, invocation: Invocation | None = None) -> int:
    from torchlint.cli.program import run

    return run(arguments, invocation)


def _leave(code: int) -> NoReturn:
    """End the process without taking its objects apart, which takes longer than some runs."""
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)
