"""The command `server`."""

from __future__ import annotations

import sys

import click

from torchlint.cli.run import refused
from torchlint.cli.terminal import remark, require
from torchlint.registry import load_registry


@click.command()
@click.pass_context
def server(ctx: click.Context) -> None:
    """Serve an editor over standard input and output.

    The editor starts it and talks the Language Server Protocol: findings as you type, fixes, and
    the pages of rules.
    """
    require("pygls", "lsp", "`torchlint server` needs pygls")
    if sys.stdin.isatty():
        remark("Waiting for an editor, which should have started this. Ctrl-C ends it.")
    with refused():
        registry = load_registry()
    from torchlint.server import serve

    ctx.exit(serve(registry))
