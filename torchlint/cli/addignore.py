"""The option `check --add-ignore`: add a suppression comment for every finding."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torchlint.cli.run import Run
from torchlint.cli.terminal import remark, warn
from torchlint.engine import FileResult, WriteError, write_atomic
from torchlint.engine.ignorecomments import Annotated, annotate
from torchlint.report.summary import plural
from torchlint.source import Source


def add_ignores(run: Run, results: Iterable[FileResult]) -> int:
    """Write the comments and return the exit code: 1 if findings are left."""
    known = {head.code: head.name for head in run.registry.rules}
    silenced = files = left = 0
    for result in results:
        run.report_problems(result)
        if result.source is None or not result.findings:
            continue
        annotated = annotate(result.source, result.findings, known)
        left += len(annotated.refused)
        _name_refused(run, result.source, annotated)
        if annotated.source.text != result.source.text and _written(run, result.source, annotated):
            silenced += len(annotated.silenced)
            files += 1
    if not run.quiet:
        remark(f"Silenced {plural(silenced, 'finding')} in {plural(files, 'file')}.")
    return run.code(bool(left))


def _name_refused(run: Run, source: Source, annotated: Annotated) -> None:
    for finding in annotated.refused:
        warn(
            f"{source.path}:{source.part(finding.span).place}: {finding.code} is not silenced:"
            " no comment may stand there"
        )


def _written(run: Run, before: Source, annotated: Annotated) -> bool:
    try:
        write_atomic(Path(before.path), annotated.source, before.to_bytes())
    except WriteError as error:
        run.report_errors([str(error)])
        return False
    return True
