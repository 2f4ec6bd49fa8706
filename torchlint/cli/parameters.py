"""The values of options that are more than a word: lists, versions, patterns with codes."""

from __future__ import annotations

import click

__all__ = ["per_file_ignores", "version", "words"]


def words(value: str) -> tuple[str, ...]:
    """Read words with commas or spaces between them."""
    return tuple(value.replace(",", " ").split())


def per_file_ignores(value: str) -> dict[str, tuple[str, ...]]:
    """Read `pattern:code` pairs with commas between them."""
    ignores: dict[str, tuple[str, ...]] = {}
    for pair in value.split(","):
        pattern, colon, code = pair.strip().rpartition(":")
        if not (pattern and colon and code):
            raise click.BadParameter(
                f"`{pair.strip()}` is no `pattern:code` such as `tests/*.py:TL201`"
            )
        ignores[pattern] = (*ignores.get(pattern, ()), code)
    return ignores


def version(value: str) -> tuple[int, int]:
    """Read a version of torch."""
    from torchlint.config import target_version

    try:
        return target_version(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
