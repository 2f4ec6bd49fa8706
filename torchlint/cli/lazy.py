"""A click group that imports a command when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from torchlint.cli.ends import INTERRUPTED, READER_GONE


class LazyGroup(click.Group):
    """A group that imports the command `name` from `torchlint.cli.name` on first use.

    `aliases` maps words of other tools to commands.
    """

    def __init__(
        self,
        *arguments: Any,
        commands_help: Mapping[str, str],
        aliases: Mapping[str, str],
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._commands_help = commands_help
        self._aliases = aliases

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(self._commands_help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None if there is none with this name."""
        cmd_name = self._aliases.get(cmd_name, cmd_name)
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
        """Call the command; exit silently on Ctrl-C, SIGTERM and on a closed output."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            ctx.exit(128 + stop.args[0] if stop.args else INTERRUPTED)
        except BrokenPipeError:
            ctx.exit(READER_GONE)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command to call; raise a usage error with the nearest name if unknown."""
        word = args[0]
        known = {**self._commands_help, **self._aliases}
        if word not in known and not word.startswith("-"):
            from torchlint.cli.otherwords import command_hint

            raise click.UsageError(f"no command `{word}`{command_hint(word, known)}", ctx)
        return super().resolve_command(ctx, args)
