"""The checklist of an audit as text, JSON and Markdown."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from torchlint.audit import Audit, Row, Status
from torchlint.report.escape import printable
from torchlint.report.paint import Paint
from torchlint.report.ruffjson import dumps
from torchlint.report.summary import plural

__all__ = ["checklist", "checklist_json", "checklist_markdown"]

_VERSION: Final = 1
_LEFT: Final = 24
"""The columns before the text of a row: two spaces, the state, the line."""
_NARROW, _USUAL, _BROAD = 60, 100, 120


def checklist(audit: Audit, paint: Paint) -> str:
    """Return the checklist of one program, grouped by family, and what to do next."""
    width = min(max(paint.width or _USUAL, _NARROW), _BROAD)
    lines = [paint.path(printable(audit.path)) + _with_modules(audit)]
    for family, rows in groupby(audit.rows, key=lambda row: row.family):
        lines += ["", paint.strong(family)]
        lines += [line for row in rows for line in _lines(row, paint, width)]
    last = textwrap.wrap(_next(audit), width, break_on_hyphens=False, break_long_words=False)
    return "\n".join([*lines, "", paint.strong(_counted(audit)), *last]) + "\n"


def _with_modules(audit: Audit) -> str:
    """Return how many other files of the program were looked at."""
    return f" and {plural(len(audit.modules), 'module')} that it uses" if audit.modules else ""


def _lines(row: Row, paint: Paint, width: int) -> Iterator[str]:
    styled: Mapping[Status, Callable[[str], str]] = {
        Status.IN_USE: paint.help,
        Status.MISSING: paint.mark,
        Status.CANNOT_TELL: paint.warn,
        Status.NOT_APPLICABLE: str,
    }
    state = styled[row.status](row.status.value) + " " * (14 - len(row.status.value))
    place = f", {row.elsewhere}" if row.elsewhere else ""
    text = printable(f"{row.technique}: {row.why}{place}{_aside(row)}")
    first, *rest = textwrap.wrap(text, width - _LEFT, break_on_hyphens=False)
    named = paint.strong(row.technique)
    shown = first.replace(row.technique, named, 1) if first.startswith(row.technique) else first
    yield f"  {state} {row.place:>5}  {shown}"
    yield from (" " * _LEFT + line for line in rest)


def _aside(row: Row) -> str:
    parts = [part for part in (", ".join(row.rules), row.gain) if part]
    return f" [{'; '.join(parts)}]" if parts else ""


def _counted(audit: Audit) -> str:
    counts = Counter(row.status for row in audit.rows)
    counted = [f"{counts[state]} {state.value}" for state in Status]
    return f"{plural(len(audit.rows), 'technique')}: {', '.join(counted)}."


def _next(audit: Audit) -> str:
    codes = [code for row in audit.rows for code in row.rules]
    path = printable(audit.path)
    if codes:
        return (
            f"Next: `torchlint fix --unsafe-fixes {path}` shows the rewrites, and "
            f"`torchlint explain {codes[0]}` explains a rule."
        )
    if any(row.status is Status.MISSING for row in audit.rows):
        return "Next: decide which missing techniques you want; no rule reports them."
    if all(row.status is not Status.IN_USE for row in audit.rows):
        return "Next: audit the script that trains; this one does not."
    return "Next: nothing that torchlint can see is missing."


def checklist_json(audits: Sequence[Audit]) -> str:
    """Return an object for one script, a list of objects for several."""
    objects = [_object(audit) for audit in audits]
    return dumps(objects[0] if len(objects) == 1 else objects, indent=2) + "\n"


def _object(audit: Audit) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "script": audit.path,
        "modules": list(audit.modules),
        "rows": [
            {
                "family": row.family,
                "technique": row.technique,
                "articles": list(row.articles),
                "state": row.status.value,
                **({} if row.cell is None else {"cell": row.cell}),
                **({"filename": row.path} if row.path else {}),
                "line": row.line,
                "why": row.why,
                "rules": list(row.rules),
                "gain": row.gain or None,
            }
            for row in audit.rows
        ],
    }


def checklist_markdown(audit: Audit) -> str:
    """Return a table per family."""
    lines = [f"# {_cell(audit.path)}{_with_modules(audit)}"]
    for family, rows in groupby(audit.rows, key=lambda row: row.family):
        lines += ["", f"## {family}", "", "| technique | state | line | why | rules | gain |"]
        lines.append("|---|---|---|---|---|---|")
        lines += [
            f"| {row.technique} | {row.status.value} "
            f"| {_cell(row.place or row.elsewhere)} | {_cell(row.why)} "
            f"| {', '.join(row.rules)} | {row.gain} |"
            for row in rows
        ]
    return "\n".join([*lines, "", _counted(audit), "", _next(audit)]) + "\n"


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")
