"""A progress bar on standard error for measurements that take minutes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torchlint.harness.stage import Notify, Stage

__all__ = ["progress_bar"]


@contextmanager
def progress_bar() -> Iterator[Notify | None]:
    """Show the current measurement and the remaining time, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("the script as it is", total=None, left="")

        def notify(stage: Stage) -> None:
            bar.update(
                task,
                completed=stage.done,
                total=stage.total if stage.done else None,
                description=stage.what,
                left="" if stage.left is None else _spoken(stage.left),
            )

        yield notify


def _spoken(seconds: float) -> str:
    if seconds < 60:
        return f"about {max(1, round(seconds))} s left"
    return f"about {round(seconds / 60)} min left"
