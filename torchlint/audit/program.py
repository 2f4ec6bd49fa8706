"""The checklist of a program, made from those of its modules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from torchlint.audit.auditing import Audit
from torchlint.audit.row import Basis, Row, Status

_STRONGEST_FIRST: Final = (
    (Status.MISSING, Basis.CODE),
    (Status.IN_USE, Basis.CODE),
    (Status.CANNOT_TELL, Basis.CODE),
    (Status.IN_USE, Basis.NO_FINDING),
    (Status.MISSING, Basis.NO_FINDING),
    (Status.NOT_APPLICABLE, Basis.CODE),
    (Status.CANNOT_TELL, Basis.ELSEWHERE),
)
"""Which module answers for a technique: one that lacks it comes before one that has it."""


def of_program(audits: Sequence[Audit]) -> Audit:
    """Return the checklist of a program from those of its modules, the started one first."""
    start, *others = audits
    rows = [[_placed(row, each.path, start.path) for row in each.rows] for each in audits]
    return Audit(
        start.path,
        tuple(_joined(of_technique) for of_technique in zip(*rows, strict=True)),
        _once(line for each in audits for line in each.errors),
        _once(line for each in audits for line in each.warnings),
        tuple(each.path for each in others),
    )


def _placed(row: Row, path: str, start: str) -> Row:
    """Return a row of a module as one of its program: with the file that its line is in."""
    at = row.path or path
    return replace(row, path="" if at == start or row.line is None else at)


def _joined(rows: Iterable[Row]) -> Row:
    """Return the row of a technique for all modules."""
    strongest, *others = sorted(
        rows, key=lambda row: _STRONGEST_FIRST.index((row.status, row.basis))
    )
    if not strongest.rules:
        return strongest
    agreeing = [row for row in others if row.rules]
    places = _once(row.path for row in agreeing if row.path and row.path != strongest.path)
    return replace(
        strongest,
        why=f"{strongest.why}{_also(places)}",
        rules=_once(code for row in (strongest, *agreeing) for code in row.rules),
        gain="; ".join(_once(part for row in (strongest, *agreeing) for part in _parts(row.gain))),
        worth=max(row.worth for row in (strongest, *agreeing)),
    )


def _parts(gain: str) -> list[str]:
    return gain.split("; ") if gain else []


def _also(paths: Sequence[str]) -> str:
    """Return a list of the other files, the first three by name."""
    if not paths:
        return ""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f" (also in {', '.join(paths[:3])}{more})"


def _once(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))
