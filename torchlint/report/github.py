"""Annotations of a GitHub workflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torchlint.report.entry import Entry
from torchlint.report.escape import github_message, github_property
from torchlint.report.header import plain_header
from torchlint.report.paint import Paint
from torchlint.report.repository import repository_path

_COMMANDS: Final = {"error": "error", "warning": "warning", "note": "notice"}


def github(entries: Sequence[Entry], paint: Paint) -> str:
    """Return a workflow command per finding of a file."""
    return "".join(_command(entry) + "\n" for entry in entries)


def _command(entry: Entry) -> str:
    start, end = entry.in_file
    properties = {
        "title": f"torchlint ({entry.finding.code})",
        "file": repository_path(entry.path),
        "line": start.row,
        "col": start.column,
        "endLine": end.row,
        "endColumn": end.column,
    }
    listed = ",".join(f"{key}={github_property(str(value))}" for key, value in properties.items())
    command = _COMMANDS[entry.severity]
    return f"::{command} {listed}::{github_message(plain_header(entry) + entry.remarks)}"
