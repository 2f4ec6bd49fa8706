"""The options `--measured` and `--min-cost`: findings in the order of what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from torchlint.report.entry import Entry
    from torchlint.report.measured import MeasuredReport

__all__ = ["measured_options", "measured_report", "without_cheap"]

Command = TypeVar("Command", bound=Callable[..., Any])


def measured_options(command: Command) -> Command:
    """Add the options."""
    report = click.option(
        "--measured",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Rank findings by what `verify --json` measured, in FILE.",
    )
    least = click.option(
        "--min-cost",
        type=click.FloatRange(0, 100),
        metavar="PERCENT",
        help="With --measured, hide what was measured to cost less of a step.",
    )
    return report(least(command))


def measured_report(options: Mapping[str, Any], paths: Sequence[str]) -> MeasuredReport | None:
    """Read the report that `--measured` names, None without one; a wrong one is refused."""
    if options["measured"] is None:
        if options["min_cost"] is not None:
            raise click.UsageError("`--min-cost` needs `--measured FILE`")
        return None
    from torchlint.report.measured import MeasuredError, read_measured

    try:
        report = read_measured(options["measured"])
        report.require(paths)
    except MeasuredError as error:
        raise click.ClickException(str(error)) from None
    return report


def without_cheap(entries: Sequence[Entry], least: float | None, hidden: list[str]) -> list[Entry]:
    """Leave out what was measured to cost less than so many per cent; `hidden` takes how much."""
    kept = [entry for entry in entries if least is None or not _is_cheap(entry, least)]
    if len(kept) < len(entries):
        from torchlint.report.summary import plural

        left_out = plural(len(entries) - len(kept), "finding")
        hidden.append(f"{left_out} hidden: measured under {least:g} % of a step")
    return kept


def _is_cheap(entry: Entry, least: float) -> bool:
    share = entry.measured.share if entry.measured else None
    return share is not None and 100 * share < least
