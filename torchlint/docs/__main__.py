"""`python -m torchlint.docs` writes the lists of rules and the pictures of the README.

`--check` reports stale ones.

Either way it fails where a rule claims a gain that measurements contradict. With `--site` it writes
the sources of the site.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from torchlint.docs.lists import files, refuted
from torchlint.docs.site import settings, site
from torchlint.registry import RegistryError
from torchlint.testing.checkout import Checkout, CheckoutError


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 where a list is stale.")
@click.option("--site", "for_site", is_flag=True, help="Write the sources of the site instead.")
def main(check: bool, for_site: bool) -> None:
    """Write the lists of rules in docs/ from the pages of the rules."""
    try:
        tree = Checkout.around(Path.cwd())
        if for_site:
            _write_site(tree)
            return
        made = files(tree)
        claims = refuted(tree)
    except (CheckoutError, RegistryError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    stale = {path: text for path, text in made.items() if _read(path) != text}
    if check:
        for path in stale:
            click.echo(f"{path.relative_to(tree.root)} is stale", err=True)
        if stale:
            click.echo("`python -m torchlint.docs` writes it", err=True)
    else:
        _write(stale)
    for claim in claims:
        click.echo(claim, err=True)
    sys.exit(bool(claims or (check and stale)))


def _write_site(tree: Checkout) -> None:
    """Write the sources of the site, into a folder that git ignores."""
    made = {**site(tree), tree.site.parent / "zensical.toml": settings(tree)}
    shutil.rmtree(tree.site, ignore_errors=True)
    shutil.copytree(tree.docs, tree.site)
    _write(made)


def _write(made: Mapping[Path, str]) -> None:
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def _read(path: Path) -> str | None:
    return path.read_bytes().decode() if path.is_file() else None


if __name__ == "__main__":
    main()
