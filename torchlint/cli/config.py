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
from torchlint.config.values import schema
from torchlint.registry import load_registry
from torchlint.report.ruffjson import dumps
from torchlint.report.settings import settings_in_force


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path), default=Path())
@configuration_options
@color_option
@click.option("--schema", "wants_schema", is_flag=True, help="Print the JSON schema of settings.")
@click.pass_context
def config(ctx: click.Context, /, path: Path, wants_schema: bool, **options: Any) -> None:
    """Print the effective settings and where each comes from.

    PATH is the file or folder to print them for, by default the current folder.
    """
    if wants_schema:
        click.echo(dumps(schema(_descriptions(ctx.find_root())), indent=2))
        return
    print_settings(path, options)


def _descriptions(root: click.Context) -> dict[str, str]:
    """Return the help of every option of `check`, by the field that it sets."""
    assert isinstance(root.command, click.Group)
    check = root.command.get_command(root, "check")
    params = check.params if check is not None else []
    known = (param for param in params if isinstance(param, click.Option))
    return {param.name: param.help for param in known if param.name and param.help}


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
