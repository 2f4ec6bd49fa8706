"""The command `server`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

from torchlint.cli.run import refused
from torchlint.cli.terminal import remark
from torchlint.registry import load_registry


@click.command()
@click.pass_context
def server(ctx: click.Context) -> None:
    """Serve an editor over standard input and output.

    The editor starts it and talks the Language Server Protocol: findings as you type, fixes, and
    the pages of rules.
    """
    if find_spec("pygls") is None:
        raise click.ClickException(
            "`torchlint server` needs pygls: `pip install 'torchlint[lsp]'` brings it"
        )
    if sys.stdin.isatty():
        remark("Waiting for an editor, which should have started this. Ctrl-C ends it.")
    with refused():
        registry = load_registry()
    from torchlint.server import serve

    ctx.exit(serve(registry))
