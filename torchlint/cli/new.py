"""The command `new`."""

from __future__ import annotations

from pathlib import Path

import click

from torchlint.scaffold import ScaffoldError, free_code, write_pack, write_rule
from torchlint.testing.checkout import Checkout, CheckoutError


@click.command()
@click.argument("name", required=False)
@click.option(
    "--family",
    type=click.IntRange(1, 9),
    help="Family of the rule, such as 2 for TL2; it gets the next free code.",
)
@click.option("--code", help="Code of the rule, such as TL212.")
@click.option(
    "--pack", metavar="NAME", help="Create a whole pack of rules, such as torchlint-acme."
)
def new(name: str | None, family: int | None, code: str | None, pack: str | None) -> None:
    """Create a new rule and its fixture in the source tree of torchlint, or a rule pack.

    NAME is the name of the rule, lower-case words with hyphens: slow-thing.
    """
    if pack is not None:
        _write_pack(pack, name, family, code)
    else:
        _write_rule(name, family, code)


def _write_pack(pack: str, name: str | None, family: int | None, code: str | None) -> None:
    if family is not None:
        raise click.UsageError("a pack has no families: give its first rule a --code, or neither")
    try:
        written = write_pack(Path.cwd(), pack, name, code.upper() if code else None)
    except ScaffoldError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{pack} cannot be written: {error.strerror}") from None
    for path in written:
        click.echo(path.relative_to(Path.cwd()))
    click.echo(
        f"{pack} works as it is: `pip install -e '{pack}[test]'` and `pytest {pack}`,"
        " then put your pattern in place of its rule",
        err=True,
    )


def _write_rule(name: str | None, family: int | None, code: str | None) -> None:
    if name is None:
        raise click.UsageError("say what the rule looks for, such as `torchlint new slow-thing`")
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
