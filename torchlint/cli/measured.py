"""The options `--measured` and `--min-cost`: rank findings by their measured cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchlint.cli.options import all_of
from torchlint.report.summary import plural

if TYPE_CHECKING:
    from torchlint.report.entry import Entry
    from torchlint.report.measured import MeasuredReport


measured_options = all_of(
    click.option(
        "--measured",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Rank findings by their cost as measured by `verify --json`, read from FILE.",
    ),
    click.option(
        "--min-cost",
        type=click.FloatRange(0, 100),
        metavar="PERCENT",
        help="With --measured, hide findings that cost less than this share of a step.",
    ),
)


def measured_report(options: Mapping[str, Any], paths: Sequence[str]) -> MeasuredReport | None:
    """Read the report given by `--measured`; None without it, a usage error if it is malformed."""
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
    """Drop findings measured to cost less than `least` percent; note in `hidden` how many."""
    kept = [entry for entry in entries if least is None or not _is_cheap(entry, least)]
    if len(kept) < len(entries):
        left_out = plural(len(entries) - len(kept), "finding")
        hidden.append(f"{left_out} hidden: measured under {least:g} % of a step")
    return kept


def _is_cheap(entry: Entry, least: float) -> bool:
    share = entry.measured.share if entry.measured else None
    return share is not None and 100 * share < least
