"""The command `explain`."""

from __future__ import annotations

import sys

import click

from torchlint.cli.options import color_option
from torchlint.cli.parameters import complete_rule
from torchlint.cli.run import known_rules, refused
from torchlint.cli.terminal import paint_for
from torchlint.measurement import measurements_of
from torchlint.report.page import brief_page, page


@click.command()
@click.argument("rule", shell_complete=complete_rule, required=False)
@click.option("--all", "wants_all", is_flag=True, help="Print the pages of all rules.")
@click.option("--examples", is_flag=True, help="Print the whole page, with every example.")
@color_option
def explain(rule: str | None, wants_all: bool, examples: bool, color: str | None) -> None:
    """Explain one rule on one screen: why, an example with its fix, the gain.

    RULE is a code such as TL201 or a name such as sync-in-training-loop.
    """
    if (rule is None) != wants_all:
        raise click.UsageError("name one rule, such as TL201, or pass `--all`")
    paint = paint_for(color, sys.stdout)
    registry = known_rules()
    write = page if examples or wants_all else brief_page
    with refused():
        heads = registry.rules if rule is None else (registry.find(rule),)
        found = [head.load() for head in heads]
    texts = (write(each, paint, measurements_of(each)) for each in found)
    if write is page and sys.stdout.isatty():
        click.echo_via_pager(texts, color=paint.color)
        return
    for text in texts:
        click.echo(text, nl=False, color=paint.color)
