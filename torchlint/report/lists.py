"""The short text formats: a line for each finding."""

from __future__ import annotations

from torchlint.report.entry import Entry
from torchlint.report.escape import printable
from torchlint.report.header import header
from torchlint.report.paint import Paint
from torchlint.report.report import Report
from torchlint.report.summary import summary

__all__ = ["concise", "grouped"]


def concise(report: Report, paint: Paint) -> str:
    """Give one line for each finding."""
    lines = [f"{header(entry, paint)}{_grade(entry, paint)}\n" for entry in report.entries]
    return "".join([*lines, *summary(report, paint)])


def grouped(report: Report, paint: Paint) -> str:
    """Give the findings under the path of their file."""
    blocks = []
    for path, entries in report.by_path():
        width = max(len(entry.place) for entry in entries)
        lines = [f"{paint.path(printable(path))}:\n"]
        for entry in entries:
            code = paint.code(entry.finding.code, entry.card.link)
            text = f"[{entry.card.name}] {printable(entry.message)}"
            lines.append(f"  {entry.place:<{width}}  {code} {text}{_grade(entry, paint)}\n")
        blocks.append("".join(lines))
    return "\n".join([*blocks, *summary(report, paint)])


def _grade(entry: Entry, paint: Paint) -> str:
    return f" {paint.warn(f'({entry.fix.safety.word} fix)')}" if entry.fix else ""
