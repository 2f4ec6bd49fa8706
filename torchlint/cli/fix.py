"""The command `fix`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from torchlint.cli.check import show_files
from torchlint.cli.failure import remark
from torchlint.cli.options import (
    configuration_options,
    paths_argument,
    report_options,
    run_options,
)
from torchlint.cli.run import Run, refused
from torchlint.cli.terminal import paint_for, with_progress
from torchlint.engine import FixResult, WriteError, fix_bytes, fix_paths, write_atomic
from torchlint.finding import Safety
from torchlint.report.entry import Entry, Report
from torchlint.report.formats import TEXT, render
from torchlint.report.summary import plural
from torchlint.report.unified import diff_bytes, diff_lines

__all__ = ["fix"]


@click.command()
@paths_argument
@click.option("--apply", is_flag=True, help="Write the fixes and report what is left.")
@configuration_options
@run_options
@report_options
@click.pass_context
def fix(ctx: click.Context, /, paths: tuple[Path, ...], **options: Any) -> None:
    """Print the diff of the fixes, or write them with --apply.

    PATHS are files and folders, by default the current one; `-` is standard input, whose fixed
    text `--apply` prints.
    """
    run = Run(options)
    run.check_statistics()
    reads_stdin = run.reads_stdin(paths)
    if options["show_files"]:
        ctx.exit(show_files(run, paths))
    results = _stdin_result(run) if reads_stdin else _results(run, run.files(paths))
    if not options["apply"]:
        ctx.exit(_show(run, results))
    ctx.exit(_print_fixed(run, *results) if reads_stdin else _apply(run, results))


def _results(run: Run, files: tuple[Path, ...]) -> Iterator[FixResult]:
    with refused():
        results = fix_paths(files, run.project, jobs=run.options["jobs"], cache_dir=run.cache_dir)
        yield from with_progress(results, len(files), wanted=not run.quiet)


def _stdin_result(run: Run) -> list[FixResult]:
    data, path, rules, settings = run.stdin()
    with refused():
        return [fix_bytes(data, path, rules, settings)]


def _show(run: Run, results: Iterable[FixResult]) -> int:
    """Print the diffs of all fixes and give the exit code."""
    changed: list[FixResult] = []
    for result in results:
        run.report_errors(result.errors)
        if result.changed:
            changed.append(result)
            _deliver_diff(run, result, first=len(changed) == 1)
    if not run.quiet:
        _say_what_would_change(changed)
    return run.code(bool(changed))


def _deliver_diff(run: Run, result: FixResult, first: bool) -> None:
    file: Path | None = run.options["output_file"]
    paint = paint_for(run.options["color"], sys.stdout)
    if file is not None:
        run.write_file(file, diff_bytes(result.before, result.after), append=not first)
    elif paint.color or sys.stdout.isatty():
        lines = diff_lines(result.before, result.after, paint)
        click.echo("".join(f"{line}\n" for line in lines), nl=False, color=paint.color)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(diff_bytes(result.before, result.after))


def _say_what_would_change(changed: list[FixResult]) -> None:
    count = sum(len(result.applied) for result in changed)
    unsafe = any(
        finding.fix is not None and finding.fix.safety is Safety.UNSAFE
        for result in changed
        for finding in result.applied
    )
    if changed:
        remark(
            f"{plural(count, 'fix')} in {plural(len(changed), 'file')}:"
            f" `torchlint fix --apply{' --unsafe-fixes' if unsafe else ''}` writes"
            f" {'it' if count == 1 else 'them'}."
        )
    else:
        remark("Nothing to fix.")


def _print_fixed(run: Run, result: FixResult) -> int:
    """Print the fixed text of standard input, and what is left on standard error."""
    run.report_errors(result.errors)
    sys.stdout.flush()
    sys.stdout.buffer.write(result.after.to_bytes())
    return run.code(any(entry.fixable for entry in run.entries(result.after, result.left)))


def _apply(run: Run, results: Iterable[FixResult]) -> int:
    """Write all fixes, report what is left, and give the exit code."""
    left: list[Entry] = []
    files = fixed = written = 0
    for result in results:
        files += 1
        run.report_errors(result.errors)
        if result.changed:
            if not _written(run, result):
                continue
            written += 1
            fixed += len(result.applied)
        left += run.entries(result.after, result.left)
    if not run.quiet:
        made = f"Made {plural(fixed, 'fix')} in {plural(written, 'file')}."
        remark(made if written else "Nothing to fix.")
    report = Report(tuple(left), files, run.failed, run.quiet)
    options = run.options
    if left or options["output_format"] not in TEXT:
        form = options["output_format"]
        run.deliver(
            partial(render, report, name=form, statistics=options["statistics"]),
            paint_for(options["color"], sys.stdout),
        )
    return run.code(any(entry.fixable for entry in left))


def _written(run: Run, result: FixResult) -> bool:
    try:
        write_atomic(Path(result.path), result.after, result.before.to_bytes())
    except WriteError as error:
        run.report_errors([str(error)])
        return False
    return True
