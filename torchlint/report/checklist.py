"""The checklist of an audit as text, JSON and Markdown."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from torchlint.audit import Audit, Row, Status
from torchlint.report.paint import Paint
from torchlint.report.ruffjson import dumps
from torchlint.report.summary import plural
from torchlint.report.text import printable

_VERSION: Final = 1
_LEFT: Final = 9
"""The columns before the text of a row: the line, and two spaces."""
STATES: Final = {state.value.replace(" ", "-"): state for state in Status}
"""The states by their words on the command line."""
_NARROW, _USUAL, _BROAD = 60, 100, 120


def checklist(audit: Audit, paint: Paint, only: Collection[Status] = ()) -> str:
    """Return the missing techniques of a program by gain, the unknown ones, and the other counts.

    With `only` the rows in these states are listed, and no others.
    """
    width = min(max(paint.width or _USUAL, _NARROW), _BROAD)
    listed = only or (Status.MISSING, Status.CANNOT_TELL)
    lines = [paint.path(printable(audit.path)) + _with_modules(audit)]
    for state in Status:
        rows = [row for row in audit.rows if row.status is state]
        if rows and state in listed:
            lines += ["", f"{_styled(state, paint)} ({len(rows)})"]
            lines += [line for row in _ordered(rows) for line in _lines(row, paint, width)]
    last = _wrapped(" ".join((*_folded(audit, listed), _next(audit))), width, 0)
    return (
        "\n".join([*lines, "", *map(paint.strong, _wrapped(_counted(audit), width, 0)), *last])
        + "\n"
    )


def _ordered(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield rows by what they are worth, those without rules and with one reason as one."""
    alike: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        alike.setdefault((row.why, row.place), []).append(row)
    for row in sorted(rows, key=lambda row: -row.worth):
        together = alike[row.why, row.place]
        if row.rules:
            yield row
        elif row is together[0]:
            yield replace(row, technique="; ".join(each.technique for each in together))


def _folded(audit: Audit, listed: Collection[Status]) -> Iterator[str]:
    """Yield how to list what was only counted."""
    folded = [
        f"`--only {word}`"
        for word, state in STATES.items()
        if state not in listed and any(row.status is state for row in audit.rows)
    ]
    if folded:
        yield f"{' and '.join(folded)} list{'' if folded[1:] else 's'} the rest."


def _with_modules(audit: Audit) -> str:
    """Return how many other files of the program were looked at."""
    return f" and {plural(len(audit.modules), 'module')} that it uses" if audit.modules else ""


def _styled(state: Status, paint: Paint) -> str:
    styles: Mapping[Status, Callable[[str], str]] = {
        Status.IN_USE: paint.help,
        Status.MISSING: paint.mark,
        Status.CANNOT_TELL: paint.warn,
        Status.NOT_APPLICABLE: str,
    }
    return styles[state](state.value)


def _lines(row: Row, paint: Paint, width: int) -> Iterator[str]:
    """Yield the lines of a row: its place, the technique and the reason, then rules and gain."""
    place = f", {row.elsewhere}" if row.elsewhere else ""
    first, *rest = _wrapped(printable(f"{row.technique}: {row.why}{place}"), width, _LEFT)
    named = paint.strong(row.technique)
    shown = first.replace(row.technique, named, 1) if first.startswith(row.technique) else first
    yield f"{row.place:>{_LEFT - 2}}  {shown}"
    for line in (*rest, *_wrapped(_aside(row), width, _LEFT)):
        yield " " * _LEFT + line


def _wrapped(text: str, width: int, left: int) -> list[str]:
    return textwrap.wrap(text, width - left, break_on_hyphens=False, break_long_words=bool(left))


def _aside(row: Row) -> str:
    return "; ".join(part for part in (", ".join(row.rules), row.gain) if part)


def _counted(audit: Audit) -> str:
    counts = Counter(row.status for row in audit.rows)
    counted = [f"{counts[state]} {state.value}" for state in Status]
    return f"{plural(len(audit.rows), 'technique')}: {', '.join(counted)}."


def _next(audit: Audit) -> str:
    worth = sorted(audit.rows, key=lambda row: -row.worth)
    codes = [code for row in worth for code in row.rules]
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
            f"| {row.technique} | {row.status.value} | {_cell(row.place or row.elsewhere)} | "
            f"{_cell(row.why)} | {', '.join(row.rules)} | {row.gain} |"
            for row in rows
        ]
    return "\n".join([*lines, "", _counted(audit), "", _next(audit)]) + "\n"


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")
