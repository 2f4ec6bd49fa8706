"""The line that names a finding: place, code, name and message."""

from __future__ import annotations

from torchlint.report.entry import Entry
from torchlint.report.escape import printable
from torchlint.report.paint import Paint

__all__ = ["header", "plain_header"]


def header(entry: Entry, paint: Paint) -> str:
    """Give `path:row:column: CODE [name] message` on one line."""
    place = f"{paint.path(printable(entry.path))}:{entry.place}:"
    code = paint.code(entry.finding.code, entry.card.link)
    return f"{place} {code} [{entry.card.name}] {printable(entry.message)}"


def plain_header(entry: Entry) -> str:
    """Give the same line as text to be escaped by the format that holds it."""
    place = f"{entry.path}:{entry.place}:"
    return f"{place} {entry.finding.code} [{entry.card.name}] {entry.message}"
