"""Checks shared by the commands that run a script."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from torchlint.cli.run import refused
from torchlint.config import load
from torchlint.engine.programs import Programs
from torchlint.notebook import is_notebook

_MOST_NAMED: Final = 3


def refuse_system(command: str) -> None:
    """Raise an error on a system where no groups of processes can be started and ended."""
    if not hasattr(os, "fork"):
        raise click.ClickException(
            f"{command} runs scripts on Linux and macOS only; `check`, `fix` and `audit` work here"
        )


def refuse_notebook(command: str, script: Path) -> None:
    """Raise a usage error if SCRIPT is a notebook."""
    if is_notebook(str(script)):
        raise click.ClickException(
            f"{command} runs scripts, and {script} is a notebook: "
            f"`jupyter nbconvert --to script {script}` makes a script of it"
        )


def refuse_module(command: str, script: Path) -> None:
    """Raise a usage error if SCRIPT only defines what other scripts run, and name these."""
    with refused():
        starts = Programs(settings_of=lambda path: load(Path(path))).started_by(str(script))
    if starts:
        named = ", ".join(f"`torchlint {command} {each}`" for each in starts[:_MOST_NAMED])
        more = f", or one of {len(starts) - _MOST_NAMED} more" if len(starts) > _MOST_NAMED else ""
        raise click.ClickException(f"{script} runs nothing by itself; what runs it: {named}{more}")
