"""The options of `check` and `fix` that say what happens to fixes, in Ruff's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from torchlint.cli.options import all_of, flag

_READ_ONLY = ("add_ignore", "write_baseline")


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
