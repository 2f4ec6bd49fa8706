"""Options shared by several commands, and the settings they produce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from torchlint.cli.parameters import (
    OneOf,
    SomePath,
    complete_rules,
    per_file_ignores,
    selected,
    version,
    words,
)
from torchlint.cli.typedline import TYPED
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
    "program": "Check files together with the definitions of other modules.",
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
_SUBJECTS: Final = {
    "Measuring": (
        *("module", "quick", "budget", "steps", "warmup", "rounds"),
        *("seed", "device", "timeout"),
    ),
    "Comparing": ("against", "same_numbers", "fail_slower", "price"),
    "Processes": ("launcher", "nproc_per_node", "nnodes", "rdzv_endpoint"),
    "Fixes": (
        *("apply", "interactive", "fix", "fix_only", "diff", "show_fixes"),
        *("exit_non_zero_on_fix", "unsafe_fixes", "fixable", "unfixable"),
    ),
    "Rules": (
        *("select", "extend_select", "ignore", "extend_ignore", "per_file_ignores", "preview"),
        *("ignore_suppressions", "add_ignore", "target_torch", "target_device"),
    ),
    "Files": (
        *("exclude", "extend_exclude", "respect_gitignore", "force_exclude", "stdin_filename"),
        *("since", "results_only", "program", "show_files", "show_links"),
    ),
    "Report": (
        *("output_format", "output_file", "sort", "show_low", "statistics"),
        *("measured", "trace", "min_cost"),
        *("baseline", "write_baseline", "quiet", "verbose", "color"),
        *("as_json", "html", "history"),
    ),
    "Exit code": ("fail_on", "exit_zero"),
    "Cache": ("no_cache", "cache_dir"),
    "Run": ("watch", "jobs", "file_timeout"),
}
_REST: Final = "Configuration"
_READ_ONLY = ("add_ignore", "write_baseline")


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


def flag(name: str) -> str:
    """Return an option as it is typed, from the name of its value."""
    return "--" + name.replace("_", "-")


def _switch(*names: str, help: str) -> Callable[[Command], Command]:
    """Return an option that switches a setting on, and leaves it alone when it is not given."""
    return click.option(*names, is_flag=True, default=None, help=help)


def all_of(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return one decorator for several options, which the help lists in this order."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


paths_argument = click.argument("paths", nargs=-1, type=SomePath(readable=False, path_type=Path))
color_option = click.option(
    "--color", type=OneOf(COLORS), help="Color the output; NO_COLOR and FORCE_COLOR work, too."
)
program_option = click.option("--program/--no-program", default=None, help=_FLAGS["program"])
file_timeout_option = click.option(
    "--file-timeout",
    type=click.FloatRange(0, MOST_SECONDS),
    metavar="SECONDS",
    help="CPU seconds per file (default 60; 0: no limit).",
)
configuration_file_options = all_of(
    click.option(
        "--config",
        "config_file",
        envvar="TORCHLINT_CONFIG",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Read only this configuration file.",
    ),
    click.option("--isolated", is_flag=True, help="Read no configuration file."),
)
"""The options that choose the configuration file."""
target_options = all_of(
    click.option(
        "--target-torch",
        type=version,
        metavar="VERSION",
        help="Oldest version of torch that the code must support.",
    ),
    click.option("--target-device", type=OneOf(DEVICES), help="Device that the code runs on."),
    configuration_file_options,
)
"""The options for the target, and those of `configuration_file_options`."""
configuration_options = all_of(
    *(
        click.option(
            flag(name),
            type=selected if name == "select" else words,
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
        click.option(f"{flag(name)}/{flag(f'no_{name}')}", default=None, help=text)
        for name, text in _FLAGS.items()
    ),
    _switch(
        "--ignore-suppressions",
        "--ignore-noqa",
        help="Also report findings that comments suppress.",
    ),
    target_options,
)
"""The options that are settings of rules and files, with those of `target_options`."""
run_options = all_of(
    click.option(
        "--stdin-filename", metavar="PATH", help="Treat standard input as the content of this file."
    ),
    click.option("--jobs", "-j", type=click.IntRange(min=1), help="Number of processes to use."),
    file_timeout_option,
    _switch("--no-cache", "-n", help="Do not read or write the cache."),
    click.option(
        "--cache-dir", type=SomePath(file_okay=False, path_type=Path), help="Folder of the cache."
    ),
    click.option("--show-files", is_flag=True, help="Print the files that would be checked."),
    click.option(
        "--watch", "-w", is_flag=True, help="Run again whenever a file changes, until Ctrl-C."
    ),
    _switch("--quiet", "-q", help="Only print findings and errors."),
    _switch("--verbose", "-v", help="Print more about the run."),
    color_option,
)
"""The options for how a run proceeds."""
report_options = all_of(
    click.option(
        "--output-format", type=OneOf(FORMATS), help="Format of the report (default: full)."
    ),
    click.option(
        "--output-file",
        "-o",
        type=SomePath(dir_okay=False, path_type=Path),
        help="Write the report to a file.",
    ),
    _switch("--statistics", help="Count findings by rule."),
    click.option(
        "--baseline",
        type=SomePath(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Hide findings that are listed in FILE.",
    ),
    click.option("--sort", type=OneOf(ORDERS), help="Order of the findings (default: file)."),
    click.option(
        "--show-low/--hide-low", default=None, help="Print findings of low impact one by one, too."
    ),
    click.option(
        "--fail-on",
        type=OneOf(STEPS),
        help="Exit with 1 only for findings of this impact and above (default: low).",
    ),
    _switch("--exit-zero", "-e", help="Exit with 0 even if there are findings."),
)
"""The options for the report and the exit code."""


class GroupedCommand(click.Command):
    """A command with a section of options per subject in its help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words of the command line, and keep them as they were typed."""
        ctx.meta[TYPED] = tuple(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by subject, in the order of the subjects."""
        subject_of = {name: subject for subject, names in _SUBJECTS.items() for name in names}
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in (*_SUBJECTS, _REST)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections[subject_of.get(param.name or "", _REST)].append(record)
        for subject, records in sections.items():
            if records:
                with formatter.section(subject):
                    formatter.write_dl(records)


class Ending(NamedTuple):
    """What a run with fixes writes, reports and fails on."""

    writes: bool
    """Whether fixes are written; otherwise their diff is printed."""
    reports: bool = True
    """Whether the remaining findings are reported."""
    fails_on_left: bool = False
    """Whether any remaining finding fails the run, not only one that is fixable."""
    fails_on_fix: bool = False
    """Whether a written fix fails the run."""
    lists_fixes: bool = False
    """Whether the written fixes are listed."""


written_fix_options = all_of(
    click.option("--diff", is_flag=True, help="Print the diff of the fixes, write nothing."),
    click.option("--show-fixes", is_flag=True, help="List the fixes that were written."),
    click.option("--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 if a fix was written."),
)
"""The options of both commands."""
check_fix_options = all_of(
    click.option("--fix/--no-fix", help="Write the fixes and report the rest, as `fix --apply`."),
    click.option("--fix-only", is_flag=True, help="Write the fixes, report nothing."),
    written_fix_options,
)
"""The options with which `check` also fixes."""


def fix_ending(options: Mapping[str, Any]) -> Ending:
    """Return how `fix` ends."""
    return Ending(
        writes=(options["apply"] or options["interactive"]) and not options["diff"],
        fails_on_fix=options["exit_non_zero_on_fix"],
        lists_fixes=options["show_fixes"],
    )


def check_ending(options: Mapping[str, Any]) -> Ending | None:
    """Return how `check` ends if it shall fix, else None; raises a usage error."""
    asked = [name for name in ("fix", "fix_only", "diff") if options[name]]
    if not asked:
        return None
    for name in (*_READ_ONLY, "measured"):
        if options[name]:
            raise click.UsageError(f"`{flag(asked[0])}` and `{flag(name)}` cannot go together")
    return Ending(
        writes=not options["diff"],
        reports=not options["fix_only"],
        fails_on_left=not options["fix_only"],
        fails_on_fix=options["exit_non_zero_on_fix"],
        lists_fixes=options["show_fixes"],
    )
