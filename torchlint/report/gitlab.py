"""GitLab's Code Quality report, a subset of Code Climate's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from torchlint.report.entry import Entry
from torchlint.report.escape import printable
from torchlint.report.identity import fingerprints, relative_path
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.repository import repository_root
from torchlint.report.ruffjson import dumps

_SEVERITIES: Final = {"error": "major", "warning": "minor", "note": "info"}


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
