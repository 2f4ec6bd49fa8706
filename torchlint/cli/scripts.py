"""What commands that run a script say of a file that is none."""

from __future__ import annotations

from pathlib import Path

import click

from torchlint.notebook import is_notebook

__all__ = ["refuse_notebook"]


def refuse_notebook(command: str, script: Path) -> None:
    """Refuse a notebook where a command runs scripts."""
    if is_notebook(str(script)):
        raise click.ClickException(
            f"{command} runs scripts, and {script} is a notebook: "
            f"`jupyter nbconvert --to script {script}` makes a script of it"
        )
