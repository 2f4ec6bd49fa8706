"""The progress of measurements that take minutes: a bar, and each result in a line."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click

from torchlint.harness.judging.verdict import Outcome
from torchlint.harness.news import Listener, Ratios
from torchlint.harness.stage import Notify, Stage
from torchlint.report.summary import plural
from torchlint.report.text import printable
from torchlint.report.verification import compared_text, title

_LONG: Final = 240
"""Seconds of a verification after which there is a quicker one to name."""


class News(Listener):
    """Prints what a verification knows, a line for each result."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def delayed(self, gone: float, runs: int, seconds: float) -> None:
        """Print that the first run takes long, and what that means for the whole."""
        self._say(
            f"the first run goes on after {gone:.0f} s: each variant needs about {runs} runs, "
            f"so expect {_spoken(seconds)} or more for it; an estimate follows"
        )

    def planned(self, variants: int, runs: int, seconds: float | None, budget: float) -> None:
        """Print what will be run, and for how long."""
        time = "" if seconds is None else f", {_spoken(seconds)}"
        self._say(
            f"{plural(variants, 'variant')} to compare, about {runs} runs{time} "
            "(Ctrl-C ends with what is known by then)"
        )
        if seconds is not None and seconds > budget:
            self._say(
                f"the budget ends in {_spoken(max(0.0, budget))}: all fixes together come first, "
                f"then each alone while time allows; --budget {_round_up(seconds)} has time for all"
            )
        elif variants > 1 and seconds is not None and seconds > _LONG and budget == math.inf:
            self._say("--quick measures all fixes together first, within two minutes")

    def compared(self, outcome: Outcome) -> None:
        """Print how the numbers of a variant compare."""
        failed = outcome.comparison is None
        text = outcome.doubts[0].message if failed else compared_text(outcome)
        self._say(f"{title(outcome)}: {text}")

    def timed(self, rounds: int, of: int, ratios: Ratios, left: float | None) -> None:
        """Print the speed so far."""
        found = ", ".join(f"{variant.name} {ratio:.2f}x" for variant, ratio in ratios)
        rest = "" if left is None or rounds == of else f"; {_spoken(left)} left"
        self._say(f"round {rounds} of {of}: {found or 'nothing timed'}{rest}")


@contextmanager
def progress_bar() -> Iterator[tuple[Notify | None, News]]:
    """Show the current measurement and the remaining time, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield None, News(lambda line: click.echo(printable(line), err=True))
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
                left="" if stage.left is None else f"{_spoken(stage.left)} left",
            )

        def say(line: str) -> None:
            bar.console.print(printable(line), markup=False, highlight=False, style="dim")

        yield notify, News(say)


def _round_up(seconds: float) -> int:
    """Return a number of seconds for an option, with some to spare."""
    return 60 * math.ceil(seconds * 1.2 / 60)


def _spoken(seconds: float) -> str:
    if seconds < 60:
        return f"about {max(1, round(seconds))} s"
    return f"about {round(seconds / 60)} min"
