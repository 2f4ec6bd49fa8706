"""The values of options that are more than a word: lists, versions, patterns with codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from torchlint.registry import Registry

__all__ = ["OneOf", "complete_rule", "complete_rules", "per_file_ignores", "version", "words"]


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


class OneOf(click.Choice[str]):
    """One of a few words; for any other the nearest is named."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Say which words there are."""
        from torchlint.config import nearest

        known = ", ".join(self.choices)
        return f"`{value}` is none of {known}{nearest(str(value), self.choices)}"


def complete_rule(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Give a shell the codes, or for a word in small letters the names, that begin so."""
    return list(_completed("", incomplete, selection=False))


def complete_rules(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Give a shell what the word behind the last comma can become."""
    before, comma, last = incomplete.rpartition(",")
    return list(_completed(before + comma, last, selection=True))


def _completed(before: str, word: str, selection: bool) -> Iterator[CompletionItem]:
    from click.shell_completion import CompletionItem

    from torchlint.registry import RegistryError, load_registry

    try:
        registry = load_registry()
    except RegistryError:
        return
    for known, told in _known(registry, by_name=word[:1].islower(), selection=selection):
        if known.startswith(word):
            yield CompletionItem(before + known, help=told)


def _known(registry: Registry, by_name: bool, selection: bool) -> Iterator[tuple[str, str]]:
    """Yield the words that speak of rules, each with what it means."""
    if by_name:
        yield from ((name, code) for code, name in registry.known.items())
        return
    if selection:
        yield "ALL", "every rule"
    yield from registry.known.items()
