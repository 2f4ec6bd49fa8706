"""The options `--measured`, `--trace` and `--min-cost`: rank findings by their measured cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from torchlint.cli.options import all_of
from torchlint.report.summary import plural

if TYPE_CHECKING:
    from torchlint.report.entry import Entry
    from torchlint.report.measured import MeasuredReport
    from torchlint.report.traced import TraceReport


class Costs(NamedTuple):
    """What is known of the costs of findings in this script."""

    report: MeasuredReport | None
    trace: TraceReport | None
    least: float | None
    """The least share of a step in percent that a finding must cost to be shown."""

    def ranked(self, entries: Sequence[Entry], remarks: list[str]) -> list[Entry]:
        """Return the findings with their costs, the most expensive first, without cheap ones.

        Appends lines about the costs to `remarks`.
        """
        found = list(entries)
        if self.trace is not None:
            found = self.trace.ranked(found, remarks)
        if self.report is not None:
            found = self.report.ranked(found)
        kept = [entry for entry in found if self.least is None or not _is_cheap(entry, self.least)]
        if len(kept) < len(found):
            left_out = plural(len(found) - len(kept), "finding")
            remarks.append(f"{left_out} hidden: measured under {self.least:g} % of a step")
        return kept


_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)

measured_options = all_of(
    click.option(
        "--measured",
        type=_FILE,
        metavar="FILE",
        help="Rank findings by their cost as measured by `verify --json`, read from FILE.",
    ),
    click.option(
        "--trace",
        type=_FILE,
        metavar="FILE",
        help="Rank findings by the idle time of the device in FILE, a trace of torch.profiler or "
        "an SQLite export of Nsight Systems.",
    ),
    click.option(
        "--min-cost",
        type=click.FloatRange(0, 100),
        metavar="PERCENT",
        help="With --measured or --trace, hide findings that cost less than this share of a step.",
    ),
)


def measured_costs(options: Mapping[str, Any], paths: Sequence[str]) -> Costs | None:
    """Read what `--measured` and `--trace` name; None without them, an error if it is malformed."""
    if options["measured"] is None and options["trace"] is None:
        if options["min_cost"] is not None:
            raise click.UsageError("`--min-cost` needs `--measured FILE` or `--trace FILE`")
        return None
    report = trace = None
    if options["measured"] is not None:
        from torchlint.report.measured import MeasuredError, read_measured

        try:
            report = read_measured(options["measured"])
            report.require(paths)
        except MeasuredError as error:
            raise click.ClickException(str(error)) from None
    if options["trace"] is not None:
        from torchlint.profiles.recording import ProfileError
        from torchlint.report.traced import read_report

        try:
            trace = read_report(options["trace"])
        except ProfileError as error:
            raise click.ClickException(str(error)) from None
    return Costs(report, trace, options["min_cost"])


def _is_cheap(entry: Entry, least: float) -> bool:
    known = entry.measured or entry.traced
    share = known.share if known else None
    return share is not None and 100 * share < least
