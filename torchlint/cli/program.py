"""The program `torchlint`: its commands and its error messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from torchlint import __version__
from torchlint.cli.ends import INTERRUPTED, NO_ROOM, READER_GONE
from torchlint.cli.terminal import fail

if TYPE_CHECKING:
    from torchlint.cli.replay import Command

_COMPLETION: Final = """\b
To complete commands, options and codes with the Tab key, put this into ~/.bashrc:
  eval "$(torchlint completions bash)"
`completions` knows zsh, fish and powershell as well.

Ruff's words work, too: `rule` is `explain`, `linter` is `rules`, `lint` is `check`.
"""
_GONE: Final = "the current folder no longer exists: change to one that does"
_COMMANDS: Final = {
    "check": "Report what makes training slow.",
    "fix": "Print the diff of the fixes, or write them with --apply.",
    "verify": "Run original and fixed script side by side, and compare.",
    "tune": "Measure the best workers, prefetch factor and batch size.",
    "audit": "List every known technique: in use, missing, not applicable.",
    "rules": "List all rules.",
    "explain": "Explain one rule: why, an example with its fix, the gain.",
    "server": "Run the language server, for editors.",
    "mcp": "Run the MCP server, for coding agents.",
    "setup": "Write the skill that tells a coding agent how to use torchlint.",
    "new": "Write a new rule, or a pack of rules.",
    "config": "Print the settings in force and where each came from.",
    "clean": "Delete the caches below a folder.",
    "completions": "Print the completion script of a shell.",
    "version": "Print the version.",
}
_CLEARER: Final = {
    "a valid integer range": "a whole number",
    "a valid float range": "a number",
    "a valid integer": "a whole number",
    "a valid float": "a number",
}
"""Words of click's messages, and what a user understands."""
_ALIASES: Final = {
    "rule": "explain",
    "linter": "rules",
    "lint": "check",
    "generate-shell-completion": "completions",
}
"""Ruff's words for commands."""


class LazyGroup(click.Group):
    """A group that imports the command `name` from `torchlint.cli.name` on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None if there is none with this name."""
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(import_module(f"torchlint.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

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
        known = {**_COMMANDS, **_ALIASES}
        if word not in known and not word.startswith("-"):
            from torchlint.cli.otherwords import command_hint

            raise click.UsageError(f"no command `{word}`{command_hint(word, known)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_COMPLETION,
)
@click.version_option(__version__, "-V", "--version", message="torchlint %(version)s")
def program() -> None:
    """Find what makes a PyTorch training script slow, fix it, and verify the fix by running it."""


def run(arguments: Sequence[str] | None, command: Command | None = None) -> int:
    """Run the program and return its exit code; `command` is this process's command line."""
    try:
        code = program.main(arguments, prog_name="torchlint", standalone_mode=False, obj=command)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return 2
    except click.ClickException as error:
        fail(_words(error))
        return 2
    except Exception as error:
        if sys.flags.dev_mode or (isinstance(error, OSError) and error.errno in NO_ROOM):
            raise
        fail(_GONE if _is_nowhere() else _internal(error))
        return 2
    return code if isinstance(code, int) else 0


def _is_nowhere() -> bool:
    try:
        Path.cwd()
    except OSError:
        return True
    return False


def _internal(error: Exception) -> str:
    words = " ".join(sys.argv[1:])
    return (
        f"internal error: {type(error).__name__}: {error}"
        f" (please report it with what `python -X dev -m torchlint {words}` prints)"
    )


def _words(error: click.ClickException) -> str:
    """Return the message of a click error."""
    if isinstance(error, click.NoSuchOption):
        return _no_option(error.option_name, error.ctx)
    message = error.format_message().strip()
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Argument):
        message = error.message.strip()
    for theirs, ours in _CLEARER.items():
        message = message.replace(theirs, ours)
    first, _, _ = message.partition(" ")
    return message[:1].lower() + message[1:] if first.istitle() else message


def _no_option(option: str, ctx: click.Context | None) -> str:
    """Return the message for an unknown option: the command that has it, or the nearest one."""
    from torchlint.cli.otherwords import option_hint

    known = _options(ctx.command) if ctx else set()
    hint = option_hint(option, known)
    if not hint.startswith(":"):
        for name in ("check", "fix"):
            command = program.get_command(click.Context(program), name)
            if command is not None and option in _options(command):
                return f"no option `{option}` here, it is one of `torchlint {name}`"
    return f"no option `{option}`{hint}"


def _options(command: click.Command) -> set[str]:
    return {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
