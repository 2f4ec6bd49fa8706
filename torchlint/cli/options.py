"""Options shared by several commands, and the settings they produce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from torchlint.cli.parameters import OneOf, complete_rules, per_file_ignores, version, words
from torchlint.config import COLORS, DEVICES, FORMATS, MOST_SECONDS, OF_THE_RUN, ORDERS, STEPS

Command = TypeVar("Command", bound=Callable[..., Any])

_LISTS: Final = {
    "select": "Rules to apply: codes, prefixes such as TL2, names, groups such as perf, or ALL.",
    "extend_select": "Add rules to the selected ones.",
    "ignore": "Rules to skip.",
    "extend_ignore": "Add rules to the ignored ones.",
    "fixable": "Rules whose fixes may be applied.",
    "unfixable": "Rules whose fixes are never applied.",
    "exclude": "Patterns of files and folders to skip.",
    "extend_exclude": "Add patterns to the excluded ones.",
    "results_only": "Patterns of files, such as tests, whose speed does not matter.",
}
_PATTERNS: Final = frozenset({"exclude", "extend_exclude", "results_only"})
_FLAGS: Final = {
    "preview": "Also apply the rules that are off by default.",
    "unsafe_fixes": "Also apply fixes that may change results.",
    "program": "Judge files together with the definitions of other modules.",
    "respect_gitignore": "Skip files that .gitignore lists.",
    "force_exclude": "Skip excluded files even if they are given as PATHS.",
}
_MAPPINGS: Final = {"per_file_ignores": "Rules to skip in files that match a pattern."}
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
    """Return the settings that were given as options."""
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
    """Add the argument PATHS."""
    return click.argument("paths", nargs=-1, type=click.Path(readable=False, path_type=Path))(
        command
    )


def color_option(command: Command) -> Command:
    """Add `--color`."""
    return click.option(
        "--color",
        type=OneOf(COLORS),
        help="Color the output; NO_COLOR and FORCE_COLOR work, too.",
    )(command)


def program_option(command: Command) -> Command:
    """Add `--program` and `--no-program`."""
    return click.option("--program/--no-program", default=None, help=_FLAGS["program"])(command)


def file_timeout_option(command: Command) -> Command:
    """Add `--file-timeout`."""
    return click.option(
        "--file-timeout",
        type=click.FloatRange(0, MOST_SECONDS),
        metavar="SECONDS",
        help="CPU seconds per file (default 60; 0: no limit).",
    )(command)


def target_options(command: Command) -> Command:
    """Add the options for the target, and those of `configuration_file_options`."""
    return _all(
        [
            click.option(
                "--target-torch",
                type=version,
                metavar="VERSION",
                help="Oldest version of torch that the code must support.",
            ),
            click.option(
                "--target-device",
                type=OneOf(DEVICES),
                help="Device that the code runs on.",
            ),
            configuration_file_options,
        ]
    )(command)


def configuration_file_options(command: Command) -> Command:
    """Add the options that choose the configuration file."""
    return _all(
        [
            click.option(
                "--config",
                "config_file",
                envvar="TORCHLINT_CONFIG",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="Read only this configuration file.",
            ),
            click.option("--isolated", is_flag=True, help="Read no configuration file."),
        ]
    )(command)


def configuration_options(command: Command) -> Command:
    """Add the options that are settings of rules and files, with those of `target_options`."""
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
                "--ignore-noqa",
                is_flag=True,
                default=None,
                help="Also report findings that comments suppress.",
            ),
            target_options,
        ]
    )(command)


def run_options(command: Command) -> Command:
    """Add the options for how a run proceeds."""
    return _all(
        [
            click.option(
                "--stdin-filename",
                metavar="PATH",
                help="Treat standard input as the content of this file.",
            ),
            click.option(
                "--jobs", "-j", type=click.IntRange(min=1), help="Number of processes to use."
            ),
            file_timeout_option,
            click.option(
                "--no-cache",
                "-n",
                is_flag=True,
                default=None,
                help="Do not read or write the cache.",
            ),
            click.option(
                "--cache-dir",
                type=click.Path(file_okay=False, path_type=Path),
                help="Folder of the cache.",
            ),
            click.option(
                "--show-files", is_flag=True, help="Print the files that would be checked."
            ),
            click.option(
                "--watch",
                "-w",
                is_flag=True,
                help="Run again whenever a file changes, until Ctrl-C.",
            ),
            click.option(
                "--quiet",
                "-q",
                is_flag=True,
                default=None,
                help="Only print findings and errors.",
            ),
            click.option(
                "--verbose", "-v", is_flag=True, default=None, help="Print more about the run."
            ),
            color_option,
        ]
    )(command)


def report_options(command: Command) -> Command:
    """Add the options for the report and the exit code."""
    return _all(
        [
            click.option(
                "--output-format",
                type=OneOf(FORMATS),
                help="Format of the report (default: full).",
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
                help="Hide findings that are listed in FILE.",
            ),
            click.option(
                "--sort", type=OneOf(ORDERS), help="Order of the findings (default: file)."
            ),
            click.option(
                "--show-low/--hide-low",
                default=None,
                help="Print findings of low impact one by one, too.",
            ),
            click.option(
                "--fail-on",
                type=OneOf(STEPS),
                help="Exit with 1 only for findings of this impact and above (default: low).",
            ),
            click.option(
                "--exit-zero",
                "-e",
                is_flag=True,
                default=None,
                help="Exit with 0 even if there are findings.",
            ),
        ]
    )(command)
