"""The option `--watch`: run again whenever a file changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from torchlint.cli.run import STDIN
from torchlint.cli.terminal import fail, remark
from torchlint.config.settings import DEFAULT_EXCLUDE
from torchlint.engine.files import DECIDING
from torchlint.wording import first_of

if TYPE_CHECKING:
    from watchfiles import Change

_CLEAR: Final = "\x1b[2J\x1b[3J\x1b[H"
"""The control sequence that clears a terminal and its scrollback."""
_SUFFIXES: Final = (".py", ".ipynb")
_TURN: Final = 200
"""Milliseconds after which the wait for changes is restarted."""


def watch(run: Callable[[], int], paths: Sequence[Path], options: Mapping[str, Any]) -> int:
    """Run now and after every change until Ctrl-C; return the exit code."""
    if STDIN in paths:
        raise click.UsageError("`--watch` looks at files, not at standard input")
    changes = _changes(tuple(paths) or (Path(),), options["config_file"])
    with _interruptible():
        for words in changes:
            _begin(words)
            _attempt(run)
    return 0


def _changes(paths: Sequence[Path], config_file: Path | None) -> Iterator[str]:
    """Yield a headline before each run: once immediately, then after every change."""
    try:
        from watchfiles import watch as watched
    except ImportError:
        raise click.ClickException(
            f"`--watch` needs watchfiles, which {sys.executable} lacks: "
            "`pip install 'torchlint[watch]'` brings it"
        ) from None
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise click.ClickException(f"{missing[0]} does not exist: there is nothing to watch")
    named = [config_file] if config_file is not None else []
    roots = {path.absolute() for path in (*paths, *named)}
    batches = watched(
        *roots,
        watch_filter=lambda change, path: _matters(Path(path), roots),
        raise_interrupt=True,
        yield_on_timeout=True,
        rust_timeout=_TURN,
    )
    next(batches)  # From here on no change is missed.
    return _spoken(batches)


def _matters(file: Path, roots: Collection[Path]) -> bool:
    """Return whether a changed file can change the findings; caches of tools cannot."""
    if file in roots:
        return True
    below = [file.relative_to(root).parts for root in roots if file.is_relative_to(root)]
    if any(not set(parts).isdisjoint(DEFAULT_EXCLUDE) for parts in below):
        return False
    return file.name in DECIDING or file.suffix in _SUFFIXES


def _spoken(batches: Iterator[set[tuple[Change, str]]]) -> Iterator[str]:
    yield "Watching; Ctrl-C ends."
    for batch in filter(None, batches):
        names = sorted({Path(path).name for _, path in batch})
        yield f"{first_of(names, 1)} changed. Watching; Ctrl-C ends."


def _begin(words: str) -> None:
    """Clear the screen on a terminal, and print why the run starts."""
    if sys.stdout.isatty():
        click.echo(_CLEAR, nl=False, color=True)
    sys.stdout.flush()
    remark(f"[{time.strftime('%H:%M:%S')}] {words}")


def _attempt(run: Callable[[], int]) -> None:
    """Run once; print an error that would end the program in one line."""
    try:
        run()
    except click.ClickException as error:
        fail(error.format_message())
    sys.stdout.flush()


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            click.echo(err=True)
