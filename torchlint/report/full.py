"""The format for people: each finding with its source, its notes and its fix."""

from __future__ import annotations

from collections.abc import Iterator

from torchlint.finding import Fix
from torchlint.report.entry import Entry, Report
from torchlint.report.escape import printable
from torchlint.report.excerpt import Excerpt, gutter_width
from torchlint.report.fixdiff import FixDiff
from torchlint.report.header import header
from torchlint.report.paint import Paint
from torchlint.report.summary import summary

__all__ = ["full", "question"]


def full(report: Report, paint: Paint) -> str:
    """Give every finding in full and a last line that says what to do next."""
    blocks = ["\n".join(_block(entry, paint)) + "\n" for entry in report.entries]
    return "\n".join([*blocks, *summary(report, paint)])


def _block(entry: Entry, paint: Paint) -> Iterator[str]:
    source = entry.source
    excerpt = Excerpt.of(source, entry.finding.span)
    notes = [
        (note.message, source.part(note.span).place, Excerpt.of(source, note.span, "-", context=0))
        for note in entry.finding.notes
    ]
    diff = FixDiff(source, entry.fix) if entry.fix else None
    gutter = gutter_width(
        excerpt.last_row,
        *(excerpt.last_row for _, _, excerpt in notes),
        diff.last_row if diff else 1,
    )
    yield header(entry, paint)
    yield from excerpt.lines(paint, gutter, paint.mark)
    for message, place, made in notes:
        at = f"{printable(entry.path)}:{place}"
        yield f"{paint.note('note:')} {at}: {printable(message)}"
        yield from made.lines(paint, gutter, paint.note)
    if entry.fix is not None and diff is not None:
        yield f"{paint.help('help:')} {_advice(entry.fix, paint)}"
        yield from diff.lines(paint, gutter)


def question(entry: Entry, paint: Paint) -> str:
    """Give a finding with the whole diff of its fix."""
    assert entry.fix is not None
    diff = FixDiff(entry.source, entry.fix)
    gutter = gutter_width(diff.last_row)
    lines = [header(entry, paint), f"{paint.help('help:')} {_advice(entry.fix, paint)}"]
    return "\n".join(["", *lines, *diff.lines(paint, gutter, most=None)])


def _advice(fix: Fix, paint: Paint) -> str:
    because = f": {printable(fix.because)}" if fix.because else ""
    return f"{printable(fix.title)} {paint.warn(f'({fix.safety.word}{because})')}"
