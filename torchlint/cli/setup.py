"""The command `setup`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from torchlint.cli.parameters import OneOf

_SKILL: Final = Path(__file__).parents[1] / "SKILL.md"
_FOLDERS: Final = {
    "claude": ".claude",
    "codex": ".agents",
    "copilot": ".github",
    "cursor": ".cursor",
    "gemini": ".gemini",
    "opencode": ".opencode",
}
"""The folder of a project whose `skills` an agent reads."""


@click.command()
@click.option("--agent", type=OneOf(list(_FOLDERS)), required=True, help="Agent that you use.")
def setup(agent: str) -> None:
    """Write the skill that tells a coding agent how to use torchlint.

    It is written below the current folder, which should be the root of the project.
    """
    file = Path(_FOLDERS[agent], "skills", "torchlint", "SKILL.md")
    skill = _SKILL.read_bytes()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as opened:
            opened.write(skill)
    except FileExistsError:
        if not file.is_file() or file.read_bytes() != skill:
            raise click.ClickException(
                f"{file} is there already and differs: remove it to get the one of this version"
            ) from None
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror}") from None
    click.echo(file)
