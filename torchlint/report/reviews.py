"""JSON for reviews: GitLab's Code Quality, a subset of Code Climate's format, and reviewdog's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from torchlint.edit import Span, in_order
from torchlint.links import DOCUMENTATION
from torchlint.report.entry import Entry
from torchlint.report.identity import fingerprints, relative_path, repository_path, repository_root
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.ruffjson import dumps
from torchlint.report.text import printable
from torchlint.source import Position, Source

_SEVERITIES: Final = {"error": "major", "warning": "minor", "note": "info"}
_LEVELS: Final = {"error": "ERROR", "warning": "WARNING", "note": "INFO"}


def gitlab(report: Report, paint: Paint) -> str:
    """Return one list of all findings, with paths relative to the root of the repository."""
    root = repository_root()
    hashes = fingerprints(report.entries, root)
    issues = [
        _issue(entry, fingerprint, root)
        for entry, fingerprint in zip(report.entries, hashes, strict=True)
    ]
    return dumps(issues, indent=2) + "\n"


def _issue(entry: Entry, fingerprint: str, root: Path) -> dict[str, Any]:
    start, end = entry.in_file
    message = printable(entry.message_in_file + entry.remarks)
    return {
        "description": f"{entry.finding.code} [{entry.card.name}] {message}",
        "check_name": entry.finding.code,
        "fingerprint": fingerprint,
        "severity": _SEVERITIES[entry.severity],
        "location": {
            "path": relative_path(entry.path, root),
            "lines": {"begin": start.row, "end": end.row},
        },
    }


def rdjson(report: Report, paint: Paint) -> str:
    """Return one diagnostic result."""
    result = {
        "source": {"name": "torchlint", "url": DOCUMENTATION},
        "severity": "WARNING",
        "diagnostics": [_diagnostic(entry) for entry in report.entries],
    }
    return dumps(result, indent=2) + "\n"


def _diagnostic(entry: Entry) -> dict[str, Any]:
    code = {"value": entry.finding.code}
    if entry.card.url is not None:
        code["url"] = entry.card.url
    source = entry.source
    location: dict[str, Any] = {"path": repository_path(entry.path)}
    if not source.is_notebook:
        location["range"] = _range(source, entry.finding.span)
    diagnostic: dict[str, Any] = {
        "message": entry.message_in_file + entry.remarks,
        "location": location,
        "severity": _LEVELS[entry.severity],
        "code": code,
    }
    if entry.fix is not None and not source.is_notebook:
        diagnostic["suggestions"] = [
            {"range": _range(source, edit.span), "text": edit.text}
            for edit in in_order(entry.fix.edits)
        ]
    return diagnostic


def _range(source: Source, span: Span) -> dict[str, Any]:
    return {
        "start": _place(source, source.position(span.start)),
        "end": _place(source, source.position(span.end)),
    }


def _place(source: Source, position: Position) -> dict[str, int]:
    """Return a place whose column counts bytes of UTF-8, from 1."""
    before = source.line(position.row)[: position.column - 1]
    return {"line": position.row, "column": len(before.encode("utf-8", "surrogatepass")) + 1}
