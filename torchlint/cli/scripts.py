"""Checks shared by the commands that run a script."""

from __future__ import annotations

from pathlib import Path

import click

from torchlint.notebook import is_notebook

__all__ = ["refuse_notebook"]


def refuse_notebook(command: str, script: Path) -> None:
    """Raise a usage error if SCRIPT is a notebook."""
    if is_notebook(str(script)):
        raise click.ClickException(
            f"{command} runs scripts, and {script} is a notebook: "
            f"`jupyter nbconvert --to script {script}` makes a script of it"
        )
