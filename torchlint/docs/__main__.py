"""`python -m torchlint.docs` writes the pages; with --check it says which are stale.

Either way it fails where a rule claims a gain that was measured and is not there.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from torchlint.docs.site import files, leftovers, refuted
from torchlint.registry import RegistryError
from torchlint.testing.checkout import Checkout, CheckoutError

__all__ = ["main"]


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 where a page is stale.")
def main(check: bool) -> None:
    """Write the pages of docs/ from the rules."""
    try:
        tree = Checkout.around(Path.cwd())
        made = files(tree)
        claims = refuted(tree)
    except (CheckoutError, RegistryError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    stale = [path for path, text in made.items() if _read(path) != text]
    gone = leftovers(tree, made)
    if check:
        for path in (*stale, *gone):
            click.echo(f"{path.relative_to(tree.root)} is stale", err=True)
        if stale or gone:
            click.echo("`python -m torchlint.docs` writes the pages anew", err=True)
    else:
        for path in stale:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made[path].encode())
        for path in gone:
            path.unlink()
    for claim in claims:
        click.echo(claim, err=True)
    sys.exit(bool(claims or (check and (stale or gone))))


def _read(path: Path) -> str | None:
    return path.read_bytes().decode() if path.is_file() else None


if __name__ == "__main__":
    main()
