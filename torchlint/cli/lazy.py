"""A click group that imports a command when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from torchlint.cli.ends import INTERRUPTED, READER_GONE

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """A group that imports the command `name` from `torchlint.cli.name` on first use."""

    def __init__(self, *arguments: Any, commands_help: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._commands_help = commands_help

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(self._commands_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None if there is none with this name."""
        if cmd_name not in self._commands_help:
            return None
        command = getattr(import_module(f"torchlint.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._commands_help.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; exit silently on Ctrl-C and on a closed output."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            ctx.exit(READER_GONE)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command to call; raise a usage error with the nearest name if unknown."""
        word = args[0]
        if word not in self._commands_help and not word.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(word, self._commands_help, n=1)
            hint = f", did you mean `{near[0]}`?" if near else "; `torchlint --help` lists them"
            raise click.UsageError(f"no command `{word}`{hint}", ctx)
        return super().resolve_command(ctx, args)
