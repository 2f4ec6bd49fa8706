"""The command `new`."""

from __future__ import annotations

from pathlib import Path

import click

from torchlint.scaffold import ScaffoldError, free_code, write_rule
from torchlint.testing.checkout import Checkout, CheckoutError

__all__ = ["new"]


@click.command()
@click.argument("name")
@click.option(
    "--family",
    type=click.IntRange(1, 9),
    help="The family of the rule, such as 2 for TL2: it gets the next free code there.",
)
@click.option("--code", help="The code of the rule, such as TL212.")
def new(name: str, family: int | None, code: str | None) -> None:
    """Write a new rule and its fixture into the source tree of torchlint.

    NAME says what the rule looks for, in lower-case words with hyphens: slow-thing.
    """
    if (family is None) == (code is None):
        raise click.UsageError("give either --family or --code")
    try:
        tree = Checkout.around(Path.cwd())
        chosen = code.upper() if code else free_code(tree, family or 0)
        written = write_rule(tree, name, chosen)
    except (CheckoutError, ScaffoldError) as error:
        raise click.ClickException(str(error)) from None
    for path in written:
        click.echo(path.relative_to(tree.root))
    click.echo(
        f"{chosen} {name} works as it is: put your pattern in its place, then run"
        " `python -m torchlint.docs`",
        err=True,
    )
