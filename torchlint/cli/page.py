"""The option `--html`: check that the page can be written, and write it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import click

from torchlint.cli.failure import fail
from torchlint.harness.judging.verdict import Report


def require_page(file: Path, script: Path) -> None:
    """Raise a usage error before any run if the page could not be rendered or written."""
    if importlib.util.find_spec("jinja2") is None:
        raise click.ClickException(
            f"`--html` makes its page with jinja2, which {sys.executable} lacks: "
            "`pip install 'torchlint[verify]'` brings it"
        )
    if file.resolve() == script.resolve():
        raise click.ClickException(f"`--html {file}` would write over the script")
    if not file.parent.is_dir():
        raise click.ClickException(f"`--html {file}`: there is no folder {file.parent}")


def write_page(file: Path, report: Report) -> bool:
    """Write the page; print the error and return False on failure."""
    from torchlint.report.html import verification_html

    page = verification_html(report)
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror}")
        return False
    return True
