"""The command `audit`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchlint.cli.options import color_option, file_timeout_option, program_option, target_options
from torchlint.cli.parameters import OneOf
from torchlint.cli.run import Run, refused
from torchlint.cli.terminal import paint_for
from torchlint.edit import Span
from torchlint.engine.parsing import UnparsableError
from torchlint.engine.results import guarded
from torchlint.engine.timelimit import within
from torchlint.notebook import read_source
from torchlint.source import Source, SourceError

if TYPE_CHECKING:
    from torchlint.audit import Audit, ProgramFacts
    from torchlint.engine.programs import Link
    from torchlint.report.paint import Paint


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="PATH...",
    type=click.Path(exists=True, path_type=Path),
)
@click.option(
    "--output-format",
    type=OneOf(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Format of the checklist.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="STATE",
    type=OneOf(["in-use", "missing", "not-applicable", "cannot-tell"]),
    help="List techniques in this state only; may be given several times.",
)
@program_option
@target_options
@file_timeout_option
@color_option
@click.pass_context
def audit(ctx: click.Context, /, paths: tuple[Path, ...], **options: Any) -> None:
    """List every known technique as in use, missing, not applicable or cannot tell.

    Missing ones come first, by gain; those in use or not applicable are only counted. PATH is a
    script or a notebook, or a folder with scripts that train; each program, a script with the
    modules of the project that it imports, gets a list of its own.
    """
    run = Run({**options, "quiet": False})
    audits = list(filter(None, (_program(run, each) for each in _scripts(run, paths))))
    if audits:
        paint = paint_for(options["color"], sys.stdout)
        text = _rendered(audits, options["output_format"], options["only"], paint)
        click.echo(text, nl=False, color=paint.color)
    ctx.exit(2 if run.failed else 0)


def _scripts(run: Run, paths: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the scripts that were given, and those in folders that train; report empty folders."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        starts = run.programs.starts(str(path))
        yield from map(Path, starts)
        if not starts:
            run.report_errors([f"{path}: no script here trains: name one"])


def _program(run: Run, script: Path) -> Audit | None:
    """Audit a script and the modules that it imports; None if the script cannot be audited."""
    from torchlint.audit import of_program

    with refused():
        program = run.programs.started(str(script), run.project.settings(script))
    own = _limited(run, script, program.link)
    if own is None:
        return None
    others = (_limited(run, Path(each), program.link, own.facts) for each in program.others)
    done = of_program([own, *filter(None, others)])
    run.report_problems(done)
    return done


def _limited(run: Run, file: Path, link: Link, facts: ProgramFacts | None = None) -> Audit | None:
    """Audit one file; report a timeout and return None."""
    limit = run.settings.file_timeout
    return within(
        limit,
        str(file),
        lambda: _audited(run, file, link, facts),
        lambda said: run.report_errors([said]),
    )


def _audited(run: Run, file: Path, link: Link, facts: ProgramFacts | None) -> Audit | None:
    """Read and audit one file; report a file that cannot be read or parsed, and return None."""
    try:
        source = read_source(file.read_bytes(), str(file))
    except OSError as error:
        run.report_errors([f"{file}: cannot be read: {error.strerror}"])
    except SourceError as error:
        run.report_errors([f"{file}:{error.position.row}: cannot be parsed: {error.message}"])
    else:
        return _of_source(run, source, link, facts)
    return None


def _of_source(run: Run, source: Source, link: Link, facts: ProgramFacts | None) -> Audit | None:
    from torchlint.audit import audit

    def audited() -> Audit | None:
        try:
            settings = run.project.settings(Path(source.path))
            return audit(source, run.registry, settings, link, facts)
        except UnparsableError as error:
            at = source.offset(error.position)
            place = f"{source.path}:{source.part(Span(at, at)).place}"
            run.report_errors([f"{place}: cannot be parsed: {error.reason}"])
            return None

    with refused():
        return guarded(source.path, audited, lambda said: run.report_errors([said]))


def _rendered(audits: list[Audit], form: str, only: tuple[str, ...], paint: Paint) -> str:
    from torchlint.report.checklist import STATES, checklist, checklist_json, checklist_markdown

    states = [STATES[word] for word in only]
    if states and form != "text":
        kept = [tuple(row for row in each.rows if row.status in states) for each in audits]
        audits = [replace(each, rows=rows) for each, rows in zip(audits, kept, strict=True)]
    if form == "json":
        return checklist_json(audits)
    if form == "markdown":
        return "\n".join(map(checklist_markdown, audits))
    return "\n".join(checklist(each, paint, states) for each in audits)
