"""The command `config`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from torchlint.cli.options import color_option, configuration_options, overrides
from torchlint.cli.run import refused
from torchlint.cli.terminal import paint_for
from torchlint.config import load
from torchlint.registry import load_registry
from torchlint.report.settings import settings_in_force

__all__ = ["config", "print_settings"]


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path), default=Path())
@configuration_options
@color_option
def config(path: Path, **options: Any) -> None:
    """Print the effective settings and where each comes from.

    PATH is the file or folder to print them for, by default the current folder.
    """
    print_settings(path, options)


def print_settings(path: Path, options: Mapping[str, Any]) -> int:
    """Print the settings of a file or folder, and return the exit code."""
    paint = paint_for(options["color"], sys.stdout)
    with refused():
        settings = load(
            path,
            overrides(options),
            isolated=options["isolated"],
            config_file=options["config_file"],
        )
        load_registry().select(settings)
    click.echo(settings_in_force(settings, paint), nl=False, color=paint.color)
    return 0
