"""The JSON that reviewdog reads, with fixes as suggestions."""

from __future__ import annotations

from typing import Any, Final

from torchlint.edit import Span, in_order
from torchlint.links import DOCUMENTATION
from torchlint.report.entry import Entry
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.repository import repository_path
from torchlint.report.ruffjson import dumps
from torchlint.source import Position, Source

_SEVERITIES: Final = {"error": "ERROR", "warning": "WARNING", "note": "INFO"}


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
        "severity": _SEVERITIES[entry.severity],
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
