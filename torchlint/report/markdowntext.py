"""Text as Markdown: in a cell of a table, and in HTML."""

from __future__ import annotations

from torchlint.report.escape import printable


def cell(text: str) -> str:
    """Return a text that is one cell of a table: code stays code, everything else is escaped."""
    parts = printable(text).replace("|", "\\|").split("`")
    if len(parts) % 2 == 0:
        return _escaped("'".join(parts))
    return "`".join(part if at % 2 else _escaped(part) for at, part in enumerate(parts))


def html(text: str) -> str:
    """Return a text for the inside of an HTML element."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escaped(text: str) -> str:
    for sign in "<*_[]@":
        text = text.replace(sign, f"&#{ord(sign)};")
    return text
