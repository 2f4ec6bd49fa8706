"""Colors, width, progress and errors on the terminal."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

import click

from torchlint.report.text import printable

if TYPE_CHECKING:
    from torchlint.report.paint import Paint

Result = TypeVar("Result")

_PATIENCE: Final = 0.6
"""Seconds before a progress bar appears."""
_LINE_GONE: Final = "\x1b[1A\x1b[2K"
"""The control sequence that erases the finished bar."""


def require(module: str, extra: str, lack: str) -> None:
    """Raise a click error that begins with `lack` if a package of an extra is not installed."""
    if importlib.util.find_spec(module) is None:
        raise click.ClickException(f"{lack}: `pip install 'torchlint[{extra}]'` brings it")


def color_wanted(choice: str | None, stream: TextIO) -> bool:
    """Return whether to use color: by the option, NO_COLOR and FORCE_COLOR, or the stream."""
    if choice not in (None, "auto"):
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint_for(choice: str | None, stream: TextIO) -> Paint:
    """Return the paint for a stream."""
    from torchlint.report.paint import Paint

    color = color_wanted(choice, stream)
    if not stream.isatty():
        return Paint(color)
    from shutil import get_terminal_size

    return Paint(color, links=color, width=get_terminal_size().columns)


def with_progress(results: Iterable[Result], total: int, wanted: bool) -> Iterator[Result]:
    """Pass results on, with a progress bar on standard error if it takes long."""
    if not (wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"):
        yield from results
        return
    began = time.monotonic()
    done = 0
    waiting = iter(results)
    for result in waiting:
        done += 1
        yield result
        if time.monotonic() - began > _PATIENCE:
            break
    if done == total:
        return
    with click.progressbar(length=total, file=sys.stderr, label="torchlint") as bar:
        bar.update(done)
        for result in waiting:
            bar.update(1)
            yield result
    click.echo(_LINE_GONE, err=True, nl=False)


def fail(message: str) -> None:
    """Print `error: …`, for a run that failed at least in part."""
    _line("error:", "red", message)


def warn(message: str) -> None:
    """Print `warning: …`, for a run that goes on but may not do what was meant."""
    _line("warning:", "magenta", message)


def remark(message: str) -> None:
    """Print a line that is not part of the result."""
    click.echo(printable(message), err=True)


def _line(word: str, color: str, message: str) -> None:
    head = click.style(word, fg=color, bold=True)
    click.echo(f"{head} {printable(' '.join(message.split()))}", err=True)
