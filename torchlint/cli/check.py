"""The command `check`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from torchlint.cli.options import (
    GroupedCommand,
    all_of,
    check_ending,
    check_fix_options,
    configuration_options,
    flag,
    paths_argument,
    report_options,
    run_options,
)
from torchlint.cli.recording import Recording
from torchlint.cli.replay import Command, Output
from torchlint.cli.run import STDIN, Run, refused
from torchlint.cli.since import ChangedLines, changed_since, since_option
from torchlint.cli.terminal import remark
from torchlint.engine import FileResult
from torchlint.engine.results import guarded
from torchlint.engine.timelimit import within
from torchlint.engine.usedelsewhere import Projects
from torchlint.report.report import Report, Tally
from torchlint.report.summary import plural

if TYPE_CHECKING:
    from torchlint.cli.baseline import KnownFindings
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


@click.command(cls=GroupedCommand)
@paths_argument
@check_fix_options
@configuration_options
@run_options
@report_options
@measured_options
@since_option
@click.option(
    "--add-ignore",
    "--add-noqa",
    is_flag=True,
    help="Add a suppression comment to the line of every finding.",
)
@click.option(
    "--show-links",
    is_flag=True,
    help="Print the definitions of other modules that each file is checked with.",
)
@click.option("--write-baseline", is_flag=True, help="Write all findings to the baseline.")
@click.option("--show-settings", is_flag=True, help="Print the settings in force, as `config`.")
@click.pass_context
def check(ctx: click.Context, /, paths: tuple[Path, ...], **options: Any) -> None:
    """Report what makes training slow.

    PATHS are files and folders, by default the current one; `-` is standard input.
    """
    if options["watch"]:
        from torchlint.cli.watch import watch

        ctx.exit(watch(lambda: _check(paths, options), paths, options))
    ctx.exit(_check(paths, options, ctx.obj))


def _check(
    paths: tuple[Path, ...], options: Mapping[str, Any], command: Command | None = None
) -> int:
    """Check once and return the exit code; with a `command` the output may be replayed."""
    if options["show_settings"]:
        from torchlint.cli.config import print_settings

        return print_settings(paths[0] if paths else Path(), options)
    changed = changed_since(options)
    ending = check_ending(options)
    if ending is not None:
        from torchlint.cli.fix import fix_once

        return fix_once(paths, options, ending)
    run = Run(options)
    run.check_statistics()
    reads_stdin = run.reads_stdin(paths)
    for action in ("add_ignore", "write_baseline"):
        if reads_stdin and options[action]:
            raise click.UsageError(f"`{flag(action)}` writes to files, not to standard input")
    if options["show_files"]:
        return run.show_files(paths)
    if options["show_links"]:
        from torchlint.cli.insteadofreport import show_links

        return show_links(run, paths)
    if options["add_ignore"]:
        from torchlint.cli.insteadofreport import add_ignores

        return add_ignores(run, run.results(run.files(paths)))
    printed = run.replay(command) if changed is None else None
    if printed is not None:
        run.show(printed.text)
        return printed.code
    known = None
    if options["write_baseline"] or run.settings.baseline is not None:
        from torchlint.cli.baseline import known_findings

        known = known_findings(run, options["write_baseline"])
    files = () if reads_stdin else run.files(paths)
    names = [options["stdin_filename"] or str(STDIN)] if reads_stdin else list(map(str, files))
    costs = measured_costs(options, names)
    if reads_stdin:
        return _report(run, _stdin_result(run), costs, known, None, changed)
    alone = known is None and costs is None and changed is None
    recording = run.recording(command, paths) if alone else None
    results = run.results(files)
    return _report(run, results, costs, known, recording, changed)


def _stdin_result(run: Run) -> list[FileResult]:

    from torchlint.engine import check_bytes

    data, path, rules, settings = run.stdin()

    def given_up(said: str) -> FileResult:
        return FileResult(path, None, warnings=(said,))

    with refused():
        limit = run.settings.file_timeout
        others = (Projects(run.project.settings_at).used_elsewhere, run.programs.link)
        work = partial(check_bytes, data, path, rules, settings, *others)
        return [within(limit, path, partial(guarded, path, work, given_up), given_up)]


def _report(
    run: Run,
    results: Iterable[FileResult],
    costs: Costs | None,
    known: KnownFindings | None,
    recording: Recording | None,
    changed: ChangedLines | None,
) -> int:
    entries: list[Entry] = []
    writer = run.report_writer() if known is None and costs is None else None
    files = suppressed = 0
    is_all_seen = True
    for result in results if known is None else known.noting(results):
        files += 1
        suppressed += result.suppressed
        if result.import_uses and recording is not None:
            is_all_seen = is_all_seen and recording.covers_project(result.path)
        run.report_problems(result)
        if result.source is not None:
            found = run.entries(result.source, result.findings)
            found = found if changed is None else changed.kept(found)
            if writer is None:
                entries += found
            else:
                writer.add(found)
    options = run.options
    if known is not None and options["write_baseline"]:
        return known.write(entries)
    hidden = [] if changed is None else changed.hidden
    if known is not None:
        known.mention_gone(entries)
        entries = known.unknown(entries, hidden)
    if costs is not None:
        entries = costs.ranked(entries, hidden)
    told = Tally() if writer is None else writer.tally
    report = Report(
        tuple(entries), files, run.failed, run.quiet, tuple(hidden), told, tuple(run.unfinished)
    )
    run.warn_left_out()
    if run.settings.verbose:
        remark(f"{plural(files, 'file')} checked, {plural(suppressed, 'finding')} suppressed")
    text = run.render(report) if writer is None else writer.text(report)
    run.deliver(text)
    code = run.code(report.tally.failing > 0)
    has_poured = writer is not None and writer.has_poured
    if recording is not None and is_all_seen and not (run.failed or run.unfinished or has_poured):
        recording.keep(Output(text, code))
    return code
