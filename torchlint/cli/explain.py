"""The command `explain`."""

from __future__ import annotations

import sys

import click

from torchlint.cli.options import color_option
from torchlint.cli.parameters import complete_rule
from torchlint.cli.run import known_rules, refused
from torchlint.cli.terminal import paint_for
from torchlint.measurement import measurements_of
from torchlint.report.page import page

__all__ = ["explain"]


@click.command()
@click.argument("rule", shell_complete=complete_rule, required=False)
@click.option("--all", "wants_all", is_flag=True, help="Print the pages of all rules.")
@color_option
def explain(rule: str | None, wants_all: bool, color: str | None) -> None:
    """Print the page of one rule.

    RULE is a code such as TL201 or a name such as sync-in-training-loop.
    """
    if (rule is None) != wants_all:
        raise click.UsageError("name one rule, such as TL201, or pass `--all`")
    paint = paint_for(color, sys.stdout)
    registry = known_rules()
    with refused():
        heads = registry.rules if rule is None else (registry.find(rule),)
        for head in heads:
            found = head.load()
            click.echo(page(found, paint, measurements_of(found)), nl=False, color=paint.color)
