"""How often each rule has spoken."""

from __future__ import annotations

from collections import Counter

from torchlint.report.entry import Report
from torchlint.report.paint import Paint
from torchlint.report.ruffjson import dumps
from torchlint.report.summary import summary

__all__ = ["statistics", "statistics_json"]


def _rows(report: Report) -> list[tuple[str, str, int, int]]:
    """Give code, name, findings and fixable findings, the most frequent first."""
    counts = Counter(entry.finding.code for entry in report.entries)
    fixable = Counter(entry.finding.code for entry in report.entries if entry.fixable)
    names = {entry.finding.code: entry.card.name for entry in report.entries}
    return [
        (code, names[code], count, fixable[code])
        for code, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def statistics(report: Report, paint: Paint) -> str:
    """Give a line for each rule that found something."""
    rows = _rows(report)
    width = max((len(str(count)) for _, _, count, _ in rows), default=0)
    lines = [
        f"{count:>{width}}  {paint.code(code)}  {name}"
        + (f" ({fixable} fixable)" if fixable else "")
        + "\n"
        for code, name, count, fixable in rows
    ]
    return "".join([*lines, *summary(report, paint)])


def statistics_json(report: Report, paint: Paint) -> str:
    """Give an object for each rule that found something."""
    keys = ("code", "name", "count", "fixable")
    return dumps([dict(zip(keys, row, strict=True)) for row in _rows(report)], indent=2) + "\n"
