"""What goes wrong, one line each, on standard error."""

from __future__ import annotations

from pathlib import Path

import click

from torchlint.notebook import is_notebook
from torchlint.report.escape import printable

__all__ = ["fail", "refuse_notebook", "remark", "warn"]


def fail(message: str) -> None:
    """Print `error: …`: the run failed, wholly or in part."""
    _line("error:", "red", message)


def warn(message: str) -> None:
    """Print `warning: …`: the run goes on, but perhaps not as was meant."""
    _line("warning:", "yellow", message)


def remark(message: str) -> None:
    """Print what is not part of the result."""
    click.echo(printable(message), err=True)


def refuse_notebook(command: str, script: Path) -> None:
    """Refuse a notebook where a command runs scripts."""
    if is_notebook(str(script)):
        raise click.ClickException(
            f"{command} runs scripts, and {script} is a notebook: "
            f"`jupyter nbconvert --to script {script}` makes a script of it"
        )


def _line(word: str, color: str, message: str) -> None:
    head = click.style(word, fg=color, bold=True)
    click.echo(f"{head} {printable(' '.join(message.split()))}", err=True)
