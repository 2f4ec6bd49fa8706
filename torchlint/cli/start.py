"""The entry point: set up the process, replay or run, and exit."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from torchlint.cli.ends import INTERRUPTED, READER_GONE
from torchlint.cli.replay import Command

_ALLOCATIONS: Final = 300_000
_DEPTH: Final = 5_000
"""The recursion limit: following names through a long file recurses deeply."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit with its exit code."""
    # The objects of a syntax tree live and die together, so frequent garbage collection is wasted.
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
        _drop_output()
        code = READER_GONE
    except OSError as error:
        from torchlint.cli.terminal import fail

        fail(f"the output cannot be written: {error.strerror}")
        _drop_output()
        code = 2
    if arguments is None:
        # The process ends here: its last collections need not visit what is left.
        gc.freeze()
    sys.exit(code)


def _drop_output() -> None:
    """Let Python flush what is left of the output at its exit without another error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_what_is_closed() -> None:
    """Open the null device for standard streams that are closed.

    Otherwise the next opened file would get the descriptor of a stream, and receive its output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _again() -> int:
    """Replay the recorded output of this command, or run it; return the exit code."""
    command = Command.given()
    printed = command.replay(command.folder) if command is not None else None
    if printed is None:
        return _run(None, command)
    sys.stdout.write(printed.text)
    return printed.code


def _run(arguments: Sequence[str] | None, command: Command | None = None) -> int:
    from torchlint.cli.program import run

    return run(arguments, command)
