"""The command line as it was typed, to be repeated with other options."""

from __future__ import annotations

import shlex
from collections.abc import Collection

import click

TYPED = "torchlint.typed"
"""The key of the words of a command line in the `meta` of its context."""


def typed_again(ctx: click.Context, *options: str, without: Collection[str]) -> str:
    """Return the command as it was typed, with new options and `without` some parameters."""
    dropped = {
        name: option.is_flag
        for option in ctx.command.params
        if isinstance(option, click.Option) and option.name in without
        for name in (*option.opts, *option.secondary_opts)
    }
    kept: list[str] = []
    words = iter(ctx.meta[TYPED])
    for word in words:
        name, joined, _ = word.partition("=")
        if word == "--":
            kept += [word, *words]
        elif name not in dropped:
            kept.append(word)
        elif not dropped[name] and not joined:
            next(words, None)
    return shlex.join(["torchlint", ctx.command.name or "", *options, *kept])
