"""Types of option values: lists, versions, patterns with codes, choices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from torchlint.config import nearest, target_version

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from torchlint.registry import Registry


def words(value: str) -> tuple[str, ...]:
    """Parse words separated by commas or spaces."""
    return tuple(value.replace(",", " ").split())


def per_file_ignores(value: str) -> dict[str, tuple[str, ...]]:
    """Parse `pattern:code` pairs separated by commas."""
    ignores: dict[str, tuple[str, ...]] = {}
    for pair in value.split(","):
        pattern, colon, code = pair.strip().rpartition(":")
        if not (pattern and colon and code):
            raise click.BadParameter(
                f"`{pair.strip()}` is not a `pattern:code` such as `tests/*.py:TL201`"
            )
        ignores[pattern] = (*ignores.get(pattern, ()), code)
    return ignores


def selected(value: str) -> tuple[str, ...]:
    """Parse the words of `--select`: without any, a run would find nothing and look clean."""
    found = words(value)
    if not found:
        raise click.BadParameter("it is empty; write `ALL` for every rule")
    return found


class SomePath(click.Path):
    """A path that is not empty, as that of a shell variable without a value is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; `""` would mean the current folder."""
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


def version(value: str) -> tuple[int, int]:
    """Parse a version of torch."""
    try:
        return target_version(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


class OneOf(click.Choice[str]):
    """A choice whose error message suggests the nearest word."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return the error message for an invalid choice."""
        known = ", ".join(self.choices)
        return f"`{value}` is none of {known}{nearest(str(value), self.choices)}"


def complete_rule(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the completions of a code, or of a rule name if it begins in lower case."""
    return list(_completed("", incomplete, selection=False))


def complete_rules(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the completions of the word after the last comma."""
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
    """Yield the words that select rules, each with a description."""
    if by_name:
        yield from ((name, code) for code, name in registry.known.items())
        groups = registry.groups if selection else {}
        yield from ((group, f"{len(codes)} rules") for group, codes in groups.items())
        return
    if selection:
        yield "ALL", "every rule"
    yield from registry.known.items()
