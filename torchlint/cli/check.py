"""The command `check`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
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
from torchlint.cli.run import STDIN, Run, refused
from torchlint.cli.terminal import paint_for, with_progress
from torchlint.engine import FileResult, check_bytes, check_paths
from torchlint.report.entry import Entry, Report
from torchlint.report.escape import printable
from torchlint.report.formats import render
from torchlint.report.summary import plural

if TYPE_CHECKING:
    from torchlint.report.measured import MeasuredReport

__all__ = ["check"]


@click.command()
@paths_argument
@configuration_options
@run_options
@report_options
@measured_options
@click.option("--add-ignore", is_flag=True, help="Silence every finding by a comment on its line.")
@click.pass_context
def check(ctx: click.Context, /, paths: tuple[Path, ...], **options: Any) -> None:
    """Report what makes training slow.

    PATHS are files and folders, by default the current one; `-` is standard input.
    """
    run = Run(options)
    run.check_statistics()
    reads_stdin = run.reads_stdin(paths)
    if reads_stdin and options["add_ignore"]:
        raise click.UsageError("`--add-ignore` writes to files, not to standard input")
    if options["show_files"]:
        ctx.exit(show_files(run, paths))
    if options["add_ignore"]:
        from torchlint.cli.addignore import add_ignores

        ctx.exit(add_ignores(run, _results(run, run.files(paths))))
    files = () if reads_stdin else run.files(paths)
    names = [options["stdin_filename"] or str(STDIN)] if reads_stdin else list(map(str, files))
    measured = measured_report(options, names)
    results = _stdin_result(run) if reads_stdin else _results(run, files)
    ctx.exit(_report(run, results, measured))


def show_files(run: Run, paths: tuple[Path, ...]) -> int:
    """Print the files that a run would look at, and give the exit code."""
    for file in run.files(paths):
        click.echo(printable(str(file)))
    return run.code(False)


def _results(run: Run, files: tuple[Path, ...]) -> Iterator[FileResult]:
    with refused():
        results = check_paths(files, run.project, jobs=run.options["jobs"], cache_dir=run.cache_dir)
        yield from with_progress(results, len(files), wanted=not run.quiet)


def _stdin_result(run: Run) -> list[FileResult]:
    data, path, rules, settings = run.stdin()
    with refused():
        return [check_bytes(data, path, rules, settings)]


def _report(run: Run, results: Iterable[FileResult], measured: MeasuredReport | None) -> int:
    entries: list[Entry] = []
    files = suppressed = 0
    for result in results:
        files += 1
        suppressed += result.suppressed
        run.report_errors(result.errors)
        if result.source is not None:
            entries += run.entries(result.source, result.findings)
    options = run.options
    hidden = ""
    if measured is not None:
        entries, hidden = without_cheap(measured.ranked(entries), options["min_cost"])
    report = Report(tuple(entries), files, run.failed, run.quiet, hidden)
    if options["verbose"]:
        remark(f"{plural(files, 'file')} checked, {plural(suppressed, 'finding')} suppressed")
    run.deliver(
        partial(render, report, name=options["output_format"], statistics=options["statistics"]),
        paint_for(options["color"], sys.stdout),
    )
    return run.code(bool(entries))
