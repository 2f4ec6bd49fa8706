"""Errors, warnings and remarks: one line each on standard error."""

from __future__ import annotations

import click

from torchlint.report.escape import printable


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
