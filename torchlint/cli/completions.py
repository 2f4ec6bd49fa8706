"""The command `completions`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from torchlint.cli.parameters import OneOf

_VARIABLE = "_TORCHLINT_COMPLETE"
"""The variable with which the scripts of click ask the program for words."""


@click.command()
@click.argument("shell", type=OneOf(["bash", "zsh", "fish", "powershell"]))
@click.pass_context
def completions(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, options and codes.

    SHELL is bash, zsh, fish or powershell. For bash, put `eval "$(torchlint completions bash)"`
    into ~/.bashrc.
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(
            f"completion for {shell} needs click 8.5 or newer: `pip install -U click` brings it"
        )
    root = ctx.find_root()
    click.echo(found(root.command, {}, "torchlint", _VARIABLE).source(), nl=False)
