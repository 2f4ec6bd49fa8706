"""Options that several commands have, and the settings that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from torchlint.cli.parameters import OneOf, complete_rules, per_file_ignores, version, words
from torchlint.config import COLORS, DEVICES, FORMATS, MOST_SECONDS, OF_THE_RUN

__all__ = [
    "color_option",
    "configuration_options",
    "file_timeout_option",
    "overrides",
    "paths_argument",
    "report_options",
    "run_options",
    "target_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])

_LISTS: Final = {
    "select": "Rules to apply: codes, prefixes such as TL2, names, or ALL.",
    "extend_select": "Rules to apply beside those selected.",
    "ignore": "Rules not to apply.",
    "extend_ignore": "Rules not to apply beside those ignored.",
    "fixable": "Rules whose fixes may be made.",
    "unfixable": "Rules whose fixes may not be made.",
    "exclude": "Patterns of files and folders to leave out.",
    "extend_exclude": "Patterns to leave out beside those excluded.",
}
_PATTERNS: Final = frozenset({"exclude", "extend_exclude"})
_FLAGS: Final = {
    "unsafe_fixes": "Make fixes that change results, too.",
    "respect_gitignore": "Leave out what .gitignore names.",
    "force_exclude": "Leave out excluded files even when they are named.",
}
_MAPPINGS: Final = {"per_file_ignores": "Rules not to apply to the files of a pattern."}
_SETTINGS: Final = (
    *_LISTS,
    *_FLAGS,
    *_MAPPINGS,
    "ignore_suppressions",
    "target_torch",
    "target_device",
    *sorted(OF_THE_RUN),
)


def overrides(options: Mapping[str, Any]) -> dict[str, Any]:
    """Give the settings among the options that were given."""
    given: dict[str, Any] = {}
    for name in _SETTINGS:
        value = options.get(name)
        if value is None or value == ():
            continue
        if name in _LISTS:
            value = tuple(word for words in value for word in words)
        elif name in _MAPPINGS:
            merged: dict[str, tuple[str, ...]] = {}
            for each in value:
                for pattern, codes in each.items():
                    merged[pattern] = (*merged.get(pattern, ()), *codes)
            value = merged
        given[name] = value
    return given


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _all(decorators: list[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def paths_argument(command: Command) -> Command:
    """Add the paths that a command looks at."""
    return click.argument("paths", nargs=-1, type=click.Path(path_type=Path))(command)


def color_option(command: Command) -> Command:
    """Add `--color`."""
    return click.option(
        "--color",
        type=OneOf(COLORS),
        help="Colour the output; also NO_COLOR and FORCE_COLOR.",
    )(command)


def file_timeout_option(command: Command) -> Command:
    """Add `--file-timeout`."""
    return click.option(
        "--file-timeout",
        type=click.FloatRange(0, MOST_SECONDS),
        metavar="SECONDS",
        help="How much computing a file may take, by default 60; 0 is no limit.",
    )(command)


def target_options(command: Command) -> Command:
    """Add the options that say for what the code is judged, and where settings are read."""
    return _all(
        [
            click.option(
                "--target-torch",
                type=version,
                metavar="VERSION",
                help="The oldest torch that the code must run on.",
            ),
            click.option(
                "--target-device",
                type=OneOf(DEVICES),
                help="The device that the code runs on.",
            ),
            click.option(
                "--config",
                "config_file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="Read this configuration file and no other.",
            ),
            click.option("--isolated", is_flag=True, help="Read no configuration file."),
        ]
    )(command)


def configuration_options(command: Command) -> Command:
    """Add the options that are settings, and where settings are read."""
    return _all(
        [
            *(
                click.option(
                    _flag(name),
                    type=words,
                    shell_complete=None if name in _PATTERNS else complete_rules,
                    metavar="PATTERNS" if name in _PATTERNS else "RULES",
                    multiple=True,
                    help=text,
                )
                for name, text in _LISTS.items()
            ),
            click.option(
                "--per-file-ignores",
                type=per_file_ignores,
                metavar="PATTERN:CODE",
                multiple=True,
                help=_MAPPINGS["per_file_ignores"],
            ),
            *(
                click.option(
                    f"{_flag(name)}/--no-{name.replace('_', '-')}", default=None, help=text
                )
                for name, text in _FLAGS.items()
            ),
            click.option(
                "--ignore-suppressions",
                is_flag=True,
                default=None,
                help="Report what comments silence, too.",
            ),
            target_options,
        ]
    )(command)


def run_options(command: Command) -> Command:
    """Add the options that say how a run goes."""
    return _all(
        [
            click.option(
                "--stdin-filename", metavar="PATH", help="The path that standard input stands for."
            ),
            click.option(
                "--jobs", "-j", type=click.IntRange(min=1), help="How many processes to use."
            ),
            file_timeout_option,
            click.option(
                "--no-cache",
                "-n",
                is_flag=True,
                default=None,
                help="Neither read nor write a cache.",
            ),
            click.option(
                "--cache-dir",
                type=click.Path(file_okay=False, path_type=Path),
                help="Where results are kept.",
            ),
            click.option(
                "--show-files", is_flag=True, help="Print the files that would be looked at."
            ),
            click.option(
                "--watch", is_flag=True, help="Run again whenever a file changes, until Ctrl-C."
            ),
            click.option(
                "--quiet",
                "-q",
                is_flag=True,
                default=None,
                help="Print findings and errors alone.",
            ),
            click.option(
                "--verbose", "-v", is_flag=True, default=None, help="Say what the run does."
            ),
            color_option,
        ]
    )(command)


def report_options(command: Command) -> Command:
    """Add the options that say what a report looks like."""
    return _all(
        [
            click.option(
                "--output-format",
                type=OneOf(FORMATS),
                help="The form of the report, by default full.",
            ),
            click.option(
                "--output-file",
                "-o",
                type=click.Path(dir_okay=False, path_type=Path),
                help="Write the report to a file.",
            ),
            click.option(
                "--statistics", is_flag=True, default=None, help="Count findings by rule."
            ),
            click.option(
                "--baseline",
                type=click.Path(dir_okay=False, path_type=Path),
                metavar="FILE",
                help="Leave alone the findings that FILE lists.",
            ),
            click.option(
                "--exit-zero",
                is_flag=True,
                default=None,
                help="Leave with 0 whatever was found.",
            ),
        ]
    )(command)
