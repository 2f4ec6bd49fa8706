"""The command `fix`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from torchlint.cli.options import (
    Ending,
    GroupedCommand,
    configuration_options,
    fix_ending,
    paths_argument,
    report_options,
    run_options,
    written_fix_options,
)
from torchlint.cli.run import Run, refused
from torchlint.cli.terminal import paint_for, remark, with_progress
from torchlint.engine import Accept, FixResult, WriteError, fix_bytes, fix_paths, write_atomic
from torchlint.engine.results import guarded
from torchlint.engine.timelimit import within
from torchlint.engine.usedelsewhere import Projects
from torchlint.finding import Finding
from torchlint.report.block import question
from torchlint.report.entry import Entry
from torchlint.report.formats import TEXT
from torchlint.report.report import Report
from torchlint.report.summary import plural
from torchlint.report.unified import diff_bytes, diff_lines
from torchlint.source import Source

if TYPE_CHECKING:
    from torchlint.cli.baseline import KnownFindings

_PROMPT: Final = "Make this fix? [y]es, [n]o, [a]ll {0}, [s]kip {0}, rest of [f]ile, [q]uit, [?]: "
_HELP: Final = """\
y  make this fix
n  leave it
a  make this fix and all others of {0}
s  leave this fix and all others of {0}
f  make this fix and all others in {1}
q  leave this fix and all that follow; those made in earlier files are written
"""
_ANSWERS: Final = {
    "yes": True,
    "no": False,
    "all": True,
    "skip": False,
    "file": True,
    "quit": False,
}


@click.command(cls=GroupedCommand)
@paths_argument
@click.option("--apply", is_flag=True, help="Write the fixes and report the remaining findings.")
@click.option("--interactive", is_flag=True, help="Ask before writing each fix.")
@written_fix_options
@configuration_options
@run_options
@report_options
@click.pass_context
def fix(ctx: click.Context, /, paths: tuple[Path, ...], **options: Any) -> None:
    """Print the fixes as a diff, or write them with --apply.

    PATHS are files and folders, by default the current one; `-` is standard input, whose fixed
    text `--apply` prints.
    """
    if options["watch"]:
        if options["interactive"]:
            raise click.UsageError("`--watch` and `--interactive` cannot go together")
        from torchlint.cli.watch import watch

        ctx.exit(watch(lambda: fix_once(paths, options, fix_ending(options)), paths, options))
    ctx.exit(fix_once(paths, options, fix_ending(options)))


def fix_once(paths: tuple[Path, ...], options: Mapping[str, Any], ending: Ending) -> int:
    """Fix once and return the exit code."""
    run = Run(options)
    run.check_statistics()
    reads_stdin = run.reads_stdin(paths)
    asks = ending.writes and options.get("interactive", False)
    if reads_stdin and asks:
        raise click.UsageError("`--interactive` writes to files, not to standard input")
    if options["show_files"]:
        return run.show_files(paths)
    known = None
    if run.settings.baseline is not None:
        from torchlint.cli.baseline import known_findings

        known = known_findings(run, write=False)
    files = () if reads_stdin else run.files(paths)
    questions = _questions(run, files, known) if asks else None
    accept = _accept(run, known, questions)
    results = (
        _stdin_result(run, accept)
        if reads_stdin
        else _results(run, files, accept, questions is not None)
    )
    if not ending.writes:
        return _show(run, results)
    if reads_stdin:
        return _print_fixed(run, next(iter(results)), ending)
    # Compute all fixes before writing any: they depend on the other files as they were.
    return _apply(run, results if questions else list(results), known, ending, questions)


def _questions(run: Run, files: tuple[Path, ...], known: KnownFindings | None) -> Questions:
    """Return the questions about the fixes of some files, which are made once to count them."""
    if not sys.stdin.isatty():
        raise click.UsageError("`--interactive` needs a terminal as standard input")
    would_be = _results(run, files, _accept(run, known, None), False)
    return Questions(run, sum(len(each.applied) for each in would_be))


def _accept(run: Run, known: KnownFindings | None, questions: Questions | None) -> Accept | None:
    """Return the callback that decides on a fix: skip known findings, then ask the user."""
    if known is None:
        return None if questions is None else questions.ask

    def accept(source: Source, finding: Finding) -> bool:
        (entry,) = run.entries(source, [finding])
        return not known.knows(entry) and (questions is None or questions.ask(source, finding))

    return accept


def _results(
    run: Run, files: tuple[Path, ...], accept: Accept | None, asks: bool
) -> Iterator[FixResult]:
    settings = run.settings
    with refused():
        results = fix_paths(
            files,
            run.project,
            jobs=1 if asks else settings.jobs,
            file_timeout=0 if asks else settings.file_timeout,
            cache_dir=run.cache_dir,
            accept=accept,
            one_by_one=asks,
            programs=run.programs,
        )
        yield from with_progress(results, len(files), wanted=not (run.quiet or asks))


def _stdin_result(run: Run, accept: Accept | None) -> list[FixResult]:
    data, path, rules, settings = run.stdin()

    def given_up(said: str) -> FixResult:
        source = Source(path, data.decode("latin-1"), "latin-1")
        return FixResult(source, source, warnings=(said,))

    with refused():
        limit = run.settings.file_timeout
        others = (Projects(run.project.settings_at).used_elsewhere, run.programs.link)
        work = partial(fix_bytes, data, path, rules, settings, accept, *others)
        return [within(limit, path, partial(guarded, path, work, given_up), given_up)]


def _show(run: Run, results: Iterable[FixResult]) -> int:
    """Print the diffs of all fixes and return the exit code."""
    changed: list[FixResult] = []
    withheld = 0
    for result in results:
        run.report_problems(result)
        withheld += sum(entry.withheld for entry in run.entries(result.after, result.left))
        if result.changed:
            changed.append(result)
            _deliver_diff(run, result, first=len(changed) == 1)
    if not run.quiet and (changed or not run.failed):
        _summarize_changes(changed, withheld)
    return run.code(bool(changed))


def _deliver_diff(run: Run, result: FixResult, first: bool) -> None:
    file = run.settings.output_file
    paint = run.paint
    if file is not None:
        run.write_file(file, diff_bytes(result.before, result.after), append=not first)
    elif paint.color or sys.stdout.isatty():
        lines = diff_lines(result.before, result.after, paint)
        click.echo("".join(f"{line}\n" for line in lines), nl=False, color=paint.color)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(diff_bytes(result.before, result.after))


def _summarize_changes(changed: list[FixResult], withheld: int) -> None:
    made = sum(len(result.applied) for result in changed)
    if made:
        said = (
            f"{plural(made, 'fix')} in {plural(len(changed), 'file')}:"
            f" `--apply` writes {'it' if made == 1 else 'them'}"
        )
        more = f", `--unsafe-fixes` would make {withheld} more" if withheld else ""
    else:
        said = "Nothing to fix"
        more = f", `--unsafe-fixes` would make {plural(withheld, 'fix')}" if withheld else ""
    remark(f"{said}{more}.")


def _print_fixed(run: Run, result: FixResult, ending: Ending) -> int:
    """Print the fixed text of standard input, and all messages on standard error."""
    run.report_problems(result)
    sys.stdout.flush()
    sys.stdout.buffer.write(result.after.to_bytes())
    sys.stdout.buffer.flush()
    left = run.entries(result.after, result.left)
    if left and ending.reports and ending.fails_on_left:
        report = Report(tuple(left), 1, run.failed, run.quiet, unfinished=tuple(run.unfinished))
        click.echo(run.render(report), nl=False, err=True)
    return _code(run, left, bool(result.changed), ending)


def _apply(
    run: Run,
    results: Iterable[FixResult],
    known: KnownFindings | None,
    ending: Ending,
    questions: Questions | None,
) -> int:
    """Write all fixes, report the remaining findings, and return the exit code."""
    left: list[Entry] = []
    written: list[FixResult] = []
    files = 0
    for result in results:
        files += 1
        run.report_problems(result)
        if result.changed:
            if not _written(run, result):
                continue
            written.append(result)
        left += run.entries(result.after, result.left)
    if not run.quiet and (written or not run.failed):
        _tell_written(written, ending)
    hidden: list[str] = []
    left = left if known is None else known.unknown(left, hidden)
    if questions is not None and questions.has_quit:
        remark(f"{plural(len(left), 'finding')} left: `torchlint check` lists them.")
        return _code(run, left, bool(written), ending)
    report = Report(
        tuple(left), files, run.failed, run.quiet, tuple(hidden), unfinished=tuple(run.unfinished)
    )
    is_worth_it = left or hidden or run.settings.output_format not in TEXT
    if ending.reports and is_worth_it:
        run.deliver(run.render(report))
    return _code(run, left, bool(written), ending)


def _code(run: Run, left: Sequence[Entry], has_fixed: bool, ending: Ending) -> int:
    """Return the exit code for the remaining findings."""
    if ending.fails_on_left:
        is_failing = any(entry.fails for entry in left)
    else:
        is_failing = ending.reports and any(entry.fixable and entry.fails for entry in left)
    return run.code(is_failing or (has_fixed and ending.fails_on_fix))


def _tell_written(written: Sequence[FixResult], ending: Ending) -> None:
    """Print how many fixes were written, and which if that is wanted."""
    made = sum(len(result.applied) for result in written)
    if not written:
        remark("Nothing to fix.")
        return
    lists = ending.lists_fixes
    remark(f"Made {plural(made, 'fix')} in {plural(len(written), 'file')}{':' if lists else '.'}")
    for result in written if lists else ():
        remark(f"- {result.path}:")
        counts = Counter(finding.code for finding in result.applied)
        for code, count in sorted(counts.items()):
            remark(f"    {count} x {code}")


def _written(run: Run, result: FixResult) -> bool:
    try:
        write_atomic(Path(result.path), result.after, result.before.to_bytes())
    except WriteError as error:
        run.report_errors([str(error)])
        return False
    return True


class Questions:
    """Questions on standard error, asked until an answer decides on all remaining fixes."""

    def __init__(self, run: Run, total: int) -> None:
        self._run = run
        self._total = total
        self._count = 0
        self._rules: dict[str, bool] = {}
        self._file = ""
        self.has_quit = False

    def ask(self, source: Source, finding: Finding) -> bool:
        """Return whether the user accepts the fix of a finding."""
        self._count += 1
        decided = self._decided(source, finding)
        if decided is not None:
            return decided
        (entry,) = self._run.entries(source, [finding])
        paint = paint_for(self._run.settings.color, sys.stderr)
        click.echo(question(entry, paint), err=True, color=paint.color)
        place = f"{self._count} of {max(self._count, self._total)}. "
        answer = _answer(
            place + paint.strong(_PROMPT.format(finding.code)),
            _HELP.format(finding.code, source.path),
        )
        if answer in ("all", "skip"):
            self._rules[finding.code] = _ANSWERS[answer]
        elif answer == "file":
            self._file = source.path
        self.has_quit = answer == "quit"
        return _ANSWERS[answer]

    def _decided(self, source: Source, finding: Finding) -> bool | None:
        """Return what an earlier answer says about a fix, None if it has to be asked for."""
        if self.has_quit:
            return False
        return True if source.path == self._file else self._rules.get(finding.code)


def _answer(prompt: str, helped: str) -> str:
    """Read until there is a valid answer; the end of the input counts as `quit`."""
    while True:
        click.echo(prompt, err=True, nl=False)
        line = sys.stdin.readline()
        if not line:
            click.echo(err=True)
            return "quit"
        word = line.strip().lower()
        for answer in _ANSWERS:
            if word in (answer, answer[0]):
                return answer
        if word == "?":
            click.echo(helped, err=True, nl=False)
