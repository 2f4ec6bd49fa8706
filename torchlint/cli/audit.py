"""The command `audit`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchlint.cli.options import (
    color_option,
    file_timeout_option,
    program_option,
    target_options,
)
from torchlint.cli.parameters import OneOf
from torchlint.cli.run import Run, refused
from torchlint.cli.terminal import paint_for
from torchlint.edit import Span
from torchlint.engine.failures import guarded
from torchlint.engine.parsing import UnparsableError
from torchlint.engine.timelimit import within
from torchlint.notebook import read_source
from torchlint.source import Source, SourceError

if TYPE_CHECKING:
    from torchlint.audit import Audit
    from torchlint.report.paint import Paint

__all__ = ["audit"]


@click.command()
@click.argument(
    "scripts",
    nargs=-1,
    required=True,
    metavar="SCRIPT...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--output-format",
    type=OneOf(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Format of the checklist.",
)
@program_option
@target_options
@file_timeout_option
@color_option
@click.pass_context
def audit(ctx: click.Context, /, scripts: tuple[Path, ...], **options: Any) -> None:
    """List every known technique as in use, missing, not applicable or cannot tell.

    SCRIPT is a Python file or a notebook; each script gets its own table.
    """
    run = Run({**options, "quiet": False})
    audits = [done for script in scripts if (done := _limited(run, script)) is not None]
    if audits:
        paint = paint_for(options["color"], sys.stdout)
        text = _rendered(audits, options["output_format"], paint)
        click.echo(text, nl=False, color=paint.color)
    ctx.exit(2 if run.failed else 0)


def _limited(run: Run, script: Path) -> Audit | None:
    """Audit one file; report a timeout and return None."""
    limit = run.settings.file_timeout
    return within(
        limit, str(script), lambda: _audited(run, script), lambda said: run.report_errors([said])
    )


def _audited(run: Run, script: Path) -> Audit | None:
    """Read and audit one file; report a file that cannot be read or parsed, and return None."""
    try:
        source = read_source(script.read_bytes(), str(script))
    except OSError as error:
        run.report_errors([f"{script}: cannot be read: {error.strerror}"])
    except SourceError as error:
        run.report_errors([f"{script}:{error.position.row}: cannot be parsed: {error.message}"])
    else:
        return _of_source(run, source)
    return None


def _of_source(run: Run, source: Source) -> Audit | None:
    from torchlint.audit import audit

    def audited() -> Audit | None:
        try:
            settings = run.project.settings(Path(source.path))
            return audit(source, run.registry, settings, run.programs.link)
        except UnparsableError as error:
            at = source.offset(error.position)
            place = f"{source.path}:{source.part(Span(at, at)).place}"
            run.report_errors([f"{place}: cannot be parsed: {error.reason}"])
            return None

    with refused():
        done = guarded(source.path, audited, lambda said: run.report_errors([said]))
    if done is not None:
        run.report_problems(done)
    return done


def _rendered(audits: list[Audit], form: str, paint: Paint) -> str:
    from torchlint.report.checklist import checklist, checklist_json, checklist_markdown

    if form == "json":
        return checklist_json(audits)
    if form == "markdown":
        return "\n".join(map(checklist_markdown, audits))
    return "\n".join(checklist(each, paint) for each in audits)
