"""SARIF 2.1.0, the exchange format of static analysis."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import quote_from_bytes

from torchlint import __version__
from torchlint.edit import Span, in_order
from torchlint.finding import Fix, Note
from torchlint.links import DOCUMENTATION
from torchlint.report.card import Card
from torchlint.report.entry import Entry, severity_of
from torchlint.report.identity import fingerprints, in_workspace, repository_path, repository_root
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.ruffjson import dumps
from torchlint.source import Part

_ROOT: Final = "SRCROOT"
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(report: Report, paint: Paint) -> str:
    """Return one SARIF log with one run."""
    cards = {entry.card.code: entry.card for entry in report.entries}
    codes = sorted(cards)
    hashes = fingerprints(report.entries, repository_root())
    run = {
        "tool": {
            "driver": {
                "name": "torchlint",
                "semanticVersion": __version__,
                "informationUri": DOCUMENTATION,
                "rules": [_rule(cards[code]) for code in codes],
            }
        },
        **_base(),
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": [
            _result(entry, codes.index(entry.card.code), fingerprint)
            for entry, fingerprint in zip(report.entries, hashes, strict=True)
        ],
    }
    return dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _base() -> dict[str, Any]:
    """Return where the paths of a job on GitHub begin."""
    if not in_workspace():
        return {}
    return {"originalUriBaseIds": {_ROOT: {"uri": f"{repository_root().as_uri()}/"}}}


def _invocation(report: Report) -> dict[str, Any]:
    invocation: dict[str, Any] = {"executionSuccessful": not report.failed}
    if report.unfinished:
        invocation["toolExecutionNotifications"] = [
            {
                "level": "warning",
                "message": {"text": each.said},
                "locations": [{"physicalLocation": {"artifactLocation": _artifact(each.path)}}],
            }
            for each in report.unfinished
        ]
    return invocation


def _rule(card: Card) -> dict[str, Any]:
    return {
        "id": card.code,
        "name": card.name,
        "shortDescription": {"text": card.summary},
        "fullDescription": {"text": _first_paragraph(card.page) or card.summary},
        **({} if card.url is None else {"helpUri": card.url}),
        "help": {"text": _plain(card.page) or card.summary, "markdown": card.page or card.summary},
        "defaultConfiguration": {"enabled": card.default, "level": severity_of(card.impact)},
        "properties": {
            "tags": ["performance", *([card.category] if card.category else [])],
            "category": card.category,
            "impact": card.impact,
        },
    }


def _first_paragraph(page: str) -> str:
    """Return the text under the first heading of a page, up to the next heading."""
    body = page.partition("\n")[2].partition("\n#")[0]
    return " ".join(body.replace("`", "").split())


def _plain(page: str) -> str:
    """Return a page without Markdown syntax."""
    return "\n".join(
        line.lstrip("# ") if line.startswith("#") else line for line in page.split("\n")
    )


def _result(entry: Entry, index: int, fingerprint: str) -> dict[str, Any]:
    finding = entry.finding
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": entry.severity,
        "message": {"text": entry.message_in_file},
        "locations": [_location(entry, finding.span)],
        "partialFingerprints": {"torchlint/v1": fingerprint},
    }
    if entry.measured is not None and entry.measured.share is not None:
        result["rank"] = 100 * max(0.0, entry.measured.share)
    elif entry.traced is not None:
        result["rank"] = 100 * entry.traced.share
    if finding.notes:
        result["relatedLocations"] = [
            {**_note_location(entry, note), "message": {"text": note.message}}
            for note in finding.notes
        ]
    if finding.fix is not None and finding.fix.edits and not entry.source.is_notebook:
        result["fixes"] = [_fix(entry, finding.fix)]
    return result


def _artifact(path: str) -> dict[str, str]:
    path = repository_path(path)
    if PurePath(path).is_absolute():
        return {"uri": Path(path).as_uri()}
    posix = PurePath(path).as_posix()
    uri = quote_from_bytes(posix.encode(errors="surrogateescape"), safe="/")
    return {"uri": uri, "uriBaseId": _ROOT} if in_workspace() else {"uri": uri}


def _region(part: Part) -> dict[str, int]:
    return {
        "startLine": part.start.row,
        "startColumn": part.start.column,
        "endLine": part.end.row,
        "endColumn": part.end.column,
    }


def _location(entry: Entry, span: Span) -> dict[str, Any]:
    """Return a place in a file; in a notebook, its first line and the name of the cell."""
    part = entry.source.part(span)
    artifact = _artifact(entry.path)
    if part.cell is None:
        return {"physicalLocation": {"artifactLocation": artifact, "region": _region(part)}}
    return {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": 1}},
        "logicalLocations": [
            {"name": f"cell {part.cell}", "fullyQualifiedName": f"{entry.path}:{part.place}"}
        ],
    }


def _note_location(entry: Entry, note: Note) -> dict[str, Any]:
    """Return the place of a note, which may be a line of another file."""
    if not note.path:
        return _location(entry, note.span)
    region = {"startLine": note.row}
    return {"physicalLocation": {"artifactLocation": _artifact(note.path), "region": region}}


def _fix(entry: Entry, fix: Fix) -> dict[str, Any]:
    because = f" ({fix.safety.word}: {fix.because})" if fix.because else f" ({fix.safety.word})"
    return {
        "description": {"text": fix.title + because},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(entry.path),
                "replacements": [
                    {
                        "deletedRegion": _region(part.part(edit.span)),
                        "insertedContent": {"text": edit.text},
                    }
                    for _, part, edits in entry.source.edits_by_part(fix.edits)
                    for edit in in_order(edits)
                ],
            }
        ],
    }
