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

_PROMPT: Final = "Make this fix? [y]es, [n]o, [a]ll {0}, [s]kip {0}, rest of [f]ile, [q]uit, [?]: "
_HELP: Final = """\
y  make this fix
n  leave it
a  make this fix and all others of {0}
s  leave this fix and all others of {0}
f  make this fix and all others in {1}
q  leave this fix and all that follow; those made in earlier files are written
"""
_ANSWERS: Final = {
    "yes": True,
    "no": False,
    "all": True,
    "skip": False,
    "file": True,
    "quit": False,
}


class Questions:
    """Questions on standard error, asked until an answer decides on all remaining fixes."""

    def __init__(self, run: Run, total: int) -> None:
        self._run = run
        self._total = total
        self._count = 0
        self._rules: dict[str, bool] = {}
        self._file = ""
        self.has_quit = False

    def ask(self, source: Source, finding: Finding) -> bool:
        """Return whether the user accepts the fix of a finding."""
        self._count += 1
        decided = self._decided(source, finding)
        if decided is not None:
            return decided
        (entry,) = self._run.entries(source, [finding])
        paint = paint_for(self._run.settings.color, sys.stderr)
        click.echo(question(entry, paint), err=True, color=paint.color)
        place = f"{self._count} of {max(self._count, self._total)}. "
        answer = _answer(
            place + paint.strong(_PROMPT.format(finding.code)),
            _HELP.format(finding.code, source.path),
        )
        if answer in ("all", "skip"):
            self._rules[finding.code] = _ANSWERS[answer]
        elif answer == "file":
            self._file = source.path
        self.has_quit = answer == "quit"
        return _ANSWERS[answer]

    def _decided(self, source: Source, finding: Finding) -> bool | None:
        """Return what an earlier answer says about a fix, None if it has to be asked for."""
        if self.has_quit:
            return False
        return True if source.path == self._file else self._rules.get(finding.code)


def _answer(prompt: str, helped: str) -> str:
    """Read until there is a valid answer; the end of the input counts as `quit`."""
    while True:
        click.echo(prompt, err=True, nl=False)
        line = sys.stdin.readline()
        if not line:
            click.echo(err=True)
            return "quit"
        word = line.strip().lower()
        for answer in _ANSWERS:
            if word in (answer, answer[0]):
                return answer
        if word == "?":
            click.echo(helped, err=True, nl=False)
