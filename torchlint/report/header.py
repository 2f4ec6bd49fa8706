"""The first line of a finding: place, code, name and message."""

from __future__ import annotations

from typing import Final

from torchlint.report.entry import Entry
from torchlint.report.escape import printable
from torchlint.report.paint import Paint
from torchlint.report.worth import tag
from torchlint.report.wrapping import wrapped

_INDENT: Final = 4


def header(entry: Entry, paint: Paint) -> str:
    """Return `path:row:column: CODE [name] impact: message` on one line."""
    return f"{_path(entry, paint)} {labels(entry, paint)} {printable(entry.message)}"


def _path(entry: Entry, paint: Paint) -> str:
    return f"{paint.path(printable(entry.path))}:{entry.place}:"


def labels(entry: Entry, paint: Paint) -> str:
    """Return code, name and impact of a finding, with its measured cost."""
    said = tag(entry)
    return _named(entry, paint) + (f" {paint.severity(said, entry.severity)}:" if said else "")


def _named(entry: Entry, paint: Paint) -> str:
    code = paint.code(entry.finding.code, entry.card.link, entry.severity)
    return f"{code} [{entry.card.name}]"


def heading(entry: Entry, paint: Paint) -> list[str]:
    """Return the same line, with the message below it where the terminal is too narrow."""
    message, place = printable(entry.message), f"{printable(entry.path)}:{entry.place}:"
    head = f"{place} {labels(entry, Paint())}"
    if paint.width is None or len(head) + 1 + len(message) <= paint.width:
        return [header(entry, paint)]
    if len(head) <= paint.width:
        first = header(entry, paint).removesuffix(f" {message}")
        return [first, *wrapped(message, paint.width, _INDENT)]
    said = tag(entry)
    below, *rest = wrapped(f"{said}: {message}" if said else message, paint.width, _INDENT) or [""]
    painted = below.replace(said, paint.severity(said, entry.severity), 1) if said else below
    return [f"{_path(entry, paint)} {_named(entry, paint)}", painted, *rest]


def plain_header(entry: Entry) -> str:
    """Return the same line without escapes, for formats that escape it themselves."""
    place = f"{entry.path}:{entry.place}:"
    return f"{place} {labels(entry, Paint())} {entry.message}"
