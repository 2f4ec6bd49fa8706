"""GitLab's Code Quality report, a subset of Code Climate's format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from torchlint.report.entry import Entry
from torchlint.report.escape import printable
from torchlint.report.identity import fingerprints, relative_path
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.ruffjson import dumps

__all__ = ["gitlab"]

_SEVERITIES: Final = {"high": "major", "medium": "minor", "low": "info"}


def gitlab(report: Report, paint: Paint) -> str:
    """Return one list of all findings, with paths relative to the root of the repository."""
    root = Path(os.environ.get("CI_PROJECT_DIR") or Path.cwd())
    hashes = fingerprints(report.entries, root)
    issues = [
        _issue(entry, fingerprint, root)
        for entry, fingerprint in zip(report.entries, hashes, strict=True)
    ]
    return dumps(issues, indent=2) + "\n"


def _issue(entry: Entry, fingerprint: str, root: Path) -> dict[str, Any]:
    start, end = entry.in_file
    message = printable(entry.message_in_file)
    return {
        "description": f"{entry.finding.code} [{entry.card.name}] {message}",
        "check_name": entry.finding.code,
        "fingerprint": fingerprint,
        "severity": _SEVERITIES.get(entry.impact, "minor"),
        "location": {
            "path": relative_path(entry.path, root),
            "lines": {"begin": start.row, "end": end.row},
        },
    }
