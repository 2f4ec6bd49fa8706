"""JSON with the field names of Ruff's JSON, and fields of torchlint's own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from torchlint.edit import Span, in_order
from torchlint.finding import Fix, Note
from torchlint.measurement import Measurement
from torchlint.report.entry import Entry, Measured
from torchlint.report.paint import Paint
from torchlint.source import Position, Source

_INDENT: Final = 2


def as_json(entries: Sequence[Entry], paint: Paint) -> str:
    """Return the findings of a file as items of the list of all findings."""
    found = (dumps(_finding(entry), indent=_INDENT) for entry in entries)
    return ",\n".join(indent(each, " " * _INDENT) for each in found)


def as_json_lines(entries: Sequence[Entry], paint: Paint) -> str:
    """Return an object on a line per finding of a file."""
    return "".join(dumps(_finding(entry)) + "\n" for entry in entries)


def dumps(value: Any, indent: int | None = None) -> str:
    """Return JSON in visible ASCII, so that no control character reaches a terminal."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def _finding(entry: Entry) -> dict[str, Any]:
    finding = entry.finding
    return {
        "cell": entry.part.cell,
        "code": finding.code,
        "name": entry.card.name,
        "message": finding.message,
        "filename": _filename(entry.path),
        "location": _place(entry.start),
        "end_location": _place(entry.end),
        "fix": None if finding.fix is None else _fix(entry.source, finding.fix),
        "notes": [_note(entry.source, note) for note in finding.notes],
        "url": entry.card.url,
        "category": entry.card.category,
        "impact": entry.impact,
        "severity": entry.severity,
        "evidence": _evidence(entry.card.evidence),
        **_measured(entry.measured),
        **({} if entry.traced is None else {"traced": asdict(entry.traced)}),
    }


def _note(source: Source, note: Note) -> dict[str, Any]:
    """Return a note; only one about another file has a file name."""
    if not note.path:
        return {"message": note.message, **_range(source, note.span)}
    place = _place(Position(note.row, 1))
    return {
        "message": note.message,
        "filename": _filename(note.path),
        "location": place,
        "end_location": place,
    }


def _evidence(measurement: Measurement | None) -> dict[str, Any] | None:
    if measurement is None:
        return None
    speedup = {"ratio": measurement.ratio, "low": measurement.low, "high": measurement.high}
    return {
        "verdict": measurement.verdict,
        "speedup": speedup,
        "device": measurement.device,
        "torch": measurement.torch,
    }


def _measured(measured: Measured | None) -> dict[str, Any]:
    """Return the measurement of the finding, None without one."""
    if measured is None:
        return {}
    return {
        "measured": {
            "verdict": measured.verdict,
            "device": measured.device,
            "speedup": {"ratio": measured.ratio, "low": measured.low, "high": measured.high},
            "share": measured.share,
            "findings": measured.findings,
        }
    }


def _filename(path: str) -> str:
    return path if path == "-" else str(Path(path).absolute())


def _place(position: Position) -> dict[str, int]:
    return {"row": position.row, "column": position.column}


def _range(source: Source, span: Span) -> dict[str, Any]:
    part = source.part(span)
    return {**_cell(part.cell), "location": _place(part.start), "end_location": _place(part.end)}


def _cell(number: int | None) -> dict[str, int]:
    return {} if number is None else {"cell": number}


def _fix(source: Source, fix: Fix) -> dict[str, Any]:
    return {
        "applicability": fix.safety.applicability,
        "message": fix.title,
        "edits": [
            {"content": edit.text, **_cell(cell), **_range(part, edit.span)}
            for cell, part, edits in source.edits_by_part(fix.edits)
            for edit in in_order(edits)
        ],
        "safety": fix.safety.word,
        "because": fix.because or None,
    }
