"""Counts of findings by rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from torchlint.report.entry import Entry
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.ruffjson import dumps
from torchlint.report.summary import summary


@dataclass(frozen=True, slots=True)
class _Row:
    """The findings of one rule."""

    code: str
    name: str
    count: int
    fixable: int
    """How many of the findings `fix` applies a fix to under these settings."""
    withheld: int
    """How many more it would fix if unsafe fixes were allowed."""


def _rows(report: Report) -> list[_Row]:
    """Return a row per rule with findings, the most frequent first."""
    by_code: dict[str, list[Entry]] = {}
    for entry in report.entries:
        by_code.setdefault(entry.finding.code, []).append(entry)
    rows = [
        _Row(
            code,
            entries[0].card.name,
            len(entries),
            sum(entry.fixable for entry in entries),
            sum(entry.withheld for entry in entries),
        )
        for code, entries in by_code.items()
    ]
    return sorted(rows, key=lambda row: (-row.count, row.code))


def statistics(report: Report, paint: Paint) -> str:
    """Return a line per rule with findings."""
    rows = _rows(report)
    width = max((len(str(row.count)) for row in rows), default=0)
    lines = [
        f"{row.count:>{width}}  {paint.code(row.code)}  {row.name}{_fixable(row)}\n" for row in rows
    ]
    return "".join([*lines, *summary(report, paint)])


def _fixable(row: _Row) -> str:
    parts = [f"{row.fixable} fixable"] if row.fixable else []
    if row.withheld:
        parts.append(f"{row.withheld}{' more' if parts else ''} with --unsafe-fixes")
    return f" ({', '.join(parts)})" if parts else ""


def statistics_json(report: Report, paint: Paint) -> str:
    """Return a list with an object per rule with findings."""
    return dumps([asdict(row) for row in _rows(report)], indent=2) + "\n"


def statistics_json_lines(report: Report, paint: Paint) -> str:
    """Return an object on a line per rule with findings."""
    return "".join(dumps(asdict(row)) + "\n" for row in _rows(report))
