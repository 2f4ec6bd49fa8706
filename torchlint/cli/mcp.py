"""The command `mcp`."""

from __future__ import annotations

from pathlib import Path

import click

from torchlint.cli.terminal import require


@click.command()
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    help="Folder whose files the tools may see.",
)
def mcp(root: Path) -> None:
    """Serve an agent over standard input and output.

    The agent starts it and talks the Model Context Protocol. The tools are check, explain, fix,
    audit, verify and tune; only the last two run a script.
    """
    require("mcp", "mcp", "`torchlint mcp` needs the package mcp")
    from torchlint.mcpserver import serve

    serve(root)
