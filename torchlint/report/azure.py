"""Issues of a pipeline on Azure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torchlint.report.entry import Entry
from torchlint.report.escape import shown
from torchlint.report.header import plain_header
from torchlint.report.paint import Paint

_TYPES: Final = {"error": "error", "warning": "warning", "note": "warning"}
"""Azure knows errors and warnings only."""
_ESCAPES: Final = {"%": "%AZP25", ";": "%3B", "]": "%5D", "\r": "%0D", "\n": "%0A"}


def azure(entries: Sequence[Entry], paint: Paint) -> str:
    """Return a logging command per finding of a file."""
    return "".join(_command(entry) + "\n" for entry in entries)


def _command(entry: Entry) -> str:
    start, _ = entry.in_file
    properties = {
        "type": _TYPES[entry.severity],
        "sourcepath": entry.path if entry.path == "-" else str(Path(entry.path).absolute()),
        "linenumber": start.row,
        "columnnumber": start.column,
        "code": entry.finding.code,
    }
    listed = "".join(f"{key}={_escaped(str(value), ';]%')};" for key, value in properties.items())
    message = _escaped(plain_header(entry) + entry.remarks, "%")
    return f"##vso[task.logissue {listed}]{message}"


def _escaped(text: str, marks: str) -> str:
    return "".join(
        _ESCAPES[each] if each in marks or each in "\r\n" else shown(each) for each in text
    )
