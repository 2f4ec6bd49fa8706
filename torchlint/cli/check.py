"""The command `check`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchlint.cli.failure import remark
from torchlint.cli.measured import measured_options, measured_report, without_cheap
from torchlint.cli.options import (
    configuration_options,
    paths_argument,
    report_options,
    run_options,
)
from torchlint.cli.printed import Printed
from torchlint.cli.run import STDIN, Run, refused
from torchlint.report.escape import printable
from torchlint.report.report import Report, Tally
from torchlint.report.summary import plural

if TYPE_CHECKING:
    from torchlint.cli.baseline import KnownFindings
    from torchlint.cli.invocation import Invocation
    from torchlint.cli.recording import Recording
    from torchlint.engine import FileResult
    from torchlint.report.entry import Entry
    from torchlint.report.measured import MeasuredReport

__all__ = ["check"]


@click.command()
@paths_argument
@configuration_options
@run_options
@report_options
@measured_options
@click.option("--add-ignore", is_flag=True, help="Silence every finding by a comment on its line.")
@click.option("--write-baseline", is_flag=True, help="Write the findings to the baseline.")
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
    paths: tuple[Path, ...], options: Mapping[str, Any], invocation: Invocation | None = None
) -> int:
    """Check once and give the exit code; what the program is called for prints may be kept."""
    command, standby = invocation or (None, None)
    run = Run(options)
    run.check_statistics()
    reads_stdin = run.reads_stdin(paths)
    for action in ("add_ignore", "write_baseline"):
        if reads_stdin and options[action]:
            name = action.replace("_", "-")
            raise click.UsageError(f"`--{name}` writes to files, not to standard input")
    if options["show_files"]:
        return show_files(run, paths)
    if options["add_ignore"]:
        from torchlint.cli.addignore import add_ignores

        return add_ignores(run, run.results(run.files(paths)))
    printed = run.printed(command)
    if printed is not None:
        run.show(printed.text)
        return printed.code
    known = None
    if options["write_baseline"] or run.settings.baseline is not None:
        from torchlint.cli.baseline import known_findings

        known = known_findings(run, options["write_baseline"])
    files = () if reads_stdin else run.files(paths)
    names = [options["stdin_filename"] or str(STDIN)] if reads_stdin else list(map(str, files))
    measured = measured_report(options, names)
    if reads_stdin:
        return _report(run, _stdin_result(run), measured, known)
    alone = known is None and measured is None
    recording = run.recording(command, paths) if alone else None
    results = run.results(files, standby)
    if standby is not None and standby.is_working:
        run.get_ready_to_report()
    return _report(run, results, measured, known, recording)


def show_files(run: Run, paths: tuple[Path, ...]) -> int:
    """Print the files that a run would look at, and give the exit code."""
    for file in run.files(paths):
        click.echo(printable(str(file)))
    return run.code(False)


def _stdin_result(run: Run) -> list[FileResult]:
    from torchlint.engine import FileResult, check_bytes
    from torchlint.engine.timelimit import within

    data, path, rules, settings = run.stdin()

    def given_up(said: str) -> FileResult:
        return FileResult(path, None, errors=(said,))

    with refused():
        limit = run.settings.file_timeout
        return [within(limit, path, partial(check_bytes, data, path, rules, settings), given_up)]


def _report(
    run: Run,
    results: Iterable[FileResult],
    measured: MeasuredReport | None,
    known: KnownFindings | None,
    recording: Recording | None = None,
) -> int:
    entries: list[Entry] = []
    telling = run.telling() if known is None and measured is None else None
    files = suppressed = 0
    for result in results if known is None else known.noting(results):
        files += 1
        suppressed += result.suppressed
        run.report_errors(result.errors)
        if result.source is not None:
            found = run.entries(result.source, result.findings)
            if telling is None:
                entries += found
            else:
                telling.add(found)
    options = run.options
    if known is not None and options["write_baseline"]:
        return known.write(entries)
    hidden: list[str] = []
    if known is not None:
        known.mention_gone(entries)
        entries = known.unknown(entries, hidden)
    if measured is not None:
        entries = without_cheap(measured.ranked(entries), options["min_cost"], hidden)
    told = Tally() if telling is None else telling.tally
    report = Report(tuple(entries), files, run.failed, run.quiet, tuple(hidden), told)
    if run.settings.verbose:
        remark(f"{plural(files, 'file')} checked, {plural(suppressed, 'finding')} suppressed")
    text = run.render(report) if telling is None else telling.text(report)
    run.deliver(text)
    code = run.code(report.tally.found > 0)
    has_poured = telling is not None and telling.has_poured
    if recording is not None and not run.failed and not has_poured:
        recording.keep(Printed(text, code))
    return code
