"""A click group that imports a command when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from torchlint.cli.ends import INTERRUPTED, READER_GONE

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """Finds the command `name` in the module `torchlint.cli.name` once it is wanted."""

    def __init__(self, *arguments: Any, commands_help: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._commands_help = commands_help

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names of all commands, in the order of the help."""
        return list(self._commands_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, None where there is no such one."""
        if cmd_name not in self._commands_help:
            return None
        command = getattr(import_module(f"torchlint.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._commands_help.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; an interrupt and a reader that is gone end it without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            ctx.exit(READER_GONE)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Give the command that is called; the nearest one is named where there is none."""
        word = args[0]
        if word not in self._commands_help and not word.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(word, self._commands_help, n=1)
            hint = f", did you mean `{near[0]}`?" if near else "; `torchlint --help` lists them"
            raise click.UsageError(f"no command `{word}`{hint}", ctx)
        return super().resolve_command(ctx, args)
