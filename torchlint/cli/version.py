"""The command `version`."""

from __future__ import annotations

import click

from torchlint import __version__


@click.command()
def version() -> None:
    """Print the version, as `--version`."""
    click.echo(f"torchlint {__version__}")
