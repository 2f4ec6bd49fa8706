"""The option `fix --interactive`: ask for each fix whether to apply it."""

from __future__ import annotations

import sys
from typing import Final

import click

from torchlint.cli.run import Run
from torchlint.cli.terminal import paint_for
from torchlint.finding import Finding
from torchlint.report.block import question
from torchlint.source import Source

__all__ = ["Questions"]

_PROMPT: Final = "Make this fix? [y]es, [n]o, [a]ll from here, [q]uit: "
_REST: Final = {"a": True, "q": False}
_ANSWERS: Final = {"y": True, "n": False, **_REST}


class Questions:
    """Questions on standard error, asked until an answer decides on all remaining fixes."""

    def __init__(self, run: Run) -> None:
        if not sys.stdin.isatty():
            raise click.UsageError("`--interactive` needs a terminal as standard input")
        self._run = run
        self._rest: bool | None = None

    def ask(self, source: Source, finding: Finding) -> bool:
        """Return whether the user accepts the fix of a finding."""
        if self._rest is not None:
            return self._rest
        (entry,) = self._run.entries(source, [finding])
        paint = paint_for(self._run.settings.color, sys.stderr)
        click.echo(question(entry, paint), err=True, color=paint.color)
        answer = _answer(paint.strong(_PROMPT))
        self._rest = _REST.get(answer)
        return _ANSWERS[answer]


def _answer(prompt: str) -> str:
    """Read until there is a valid answer; the end of the input counts as `q`."""
    while True:
        click.echo(prompt, err=True, nl=False)
        line = sys.stdin.readline()
        if not line:
            click.echo(err=True)
            return "q"
        word = line.strip().lower()
        if word in _ANSWERS or word in _LONG:
            return word[0]


_LONG: Final = frozenset({"yes", "no", "all", "quit"})
