"""Options of `check` that print or write something else: `--show-links` and `--add-ignore`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from torchlint.cli.run import STDIN, Run, refused
from torchlint.cli.terminal import remark, warn
from torchlint.engine import FileResult, WriteError, write_atomic
from torchlint.engine.ignorecomments import Annotated, annotate
from torchlint.engine.jobs import read_bytes
from torchlint.engine.ownpart import as_given
from torchlint.notebook import read_source
from torchlint.report.summary import plural
from torchlint.report.text import printable
from torchlint.semantic.view import Excerpt
from torchlint.source import Source, SourceError


def show_links(run: Run, paths: tuple[Path, ...]) -> int:
    """Print the definitions that each file is judged with, one on a line; return the exit code."""
    for source in _sources(run, paths):
        with refused():
            settings = run.project.settings(Path(source.path))
        linked = run.programs.link(source, settings)
        view = linked.view
        if linked.problem:
            run.report_errors([linked.problem])
        for module in view.modules:
            path = as_given(module.path, view.path, source.path)
            for excerpt in module.excerpts:
                for name in _names(excerpt):
                    click.echo(printable(f"{source.path}: {path}:{excerpt.row} {name}"))
    run.warn_left_out()
    return run.code(False)


def _sources(run: Run, paths: tuple[Path, ...]) -> Iterator[Source]:
    if paths == (STDIN,):
        data, path, _, _ = run.stdin()
        yield read_source(data, path)
        return
    for file in run.files(paths):
        source = _read(run, str(file))
        if source is not None:
            yield source


def _read(run: Run, name: str) -> Source | None:
    try:
        return read_source(read_bytes(name), name)
    except OSError as error:
        run.report_errors([f"{name} cannot be read: {error.strerror}"])
    except SourceError as error:
        run.report_errors([f"{name}:{error.position.row}: cannot be parsed: {error.message}"])
    return None


def _names(excerpt: Excerpt) -> Iterator[str]:
    """Yield how a statement is called: by what it defines, else by its first line."""
    for statement in ast.parse(excerpt.text).body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            yield ", ".join(map(ast.unparse, statement.targets))
        elif isinstance(statement, ast.AnnAssign):
            yield ast.unparse(statement.target)
        elif not isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield ast.unparse(statement).split("\n")[0]


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
