"""The command `rules`."""

from __future__ import annotations

import sys

import click

from torchlint.cli.options import color_option
from torchlint.cli.parameters import OneOf
from torchlint.cli.run import known_rules
from torchlint.cli.terminal import fail, paint_for
from torchlint.report.card import card_of
from torchlint.report.catalogue import catalogue, catalogue_json


@click.command()
@click.option(
    "--output-format",
    type=OneOf(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the list.",
)
@color_option
@click.pass_context
def rules(ctx: click.Context, output_format: str, color: str | None) -> None:
    """List all rules."""
    paint = paint_for(color, sys.stdout)
    usable, errors = known_rules().loaded()
    cards = [card_of(rule) for rule in usable]
    text = catalogue(cards, paint) if output_format == "text" else catalogue_json(cards)
    click.echo(text, nl=False, color=paint.color)
    for error in errors:
        fail(error)
    ctx.exit(2 if errors else 0)
