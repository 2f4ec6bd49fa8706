"""A finding for people: with its source, its notes and its fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from torchlint.finding import Fix, Note
from torchlint.report.entry import Entry
from torchlint.report.escape import printable
from torchlint.report.excerpt import Excerpt, Label, gutter_width
from torchlint.report.fixdiff import FixDiff
from torchlint.report.header import heading
from torchlint.report.paint import Paint
from torchlint.report.wrapping import wrapped


def block(entry: Entry, paint: Paint) -> Iterator[str]:
    """Return the lines that show a finding."""
    source = entry.source
    diff = FixDiff(source, entry.fix) if entry.fix else None
    excerpt = Excerpt.of(source, entry.finding.span)
    widest = gutter_width(excerpt.last_row, diff.last_row if diff else 1)
    inside, apart = _notes(entry, excerpt, paint, widest)
    excerpt = replace(excerpt, labels=tuple(inside))
    others = [(note, Excerpt.of(source, note.span, "-", context=0)) for note in apart]
    gutter = max([widest, *(gutter_width(made.last_row) for _, made in others)])
    yield from heading(entry, paint)
    yield from excerpt.lines(paint, gutter, paint.mark)
    for note in entry.notes_elsewhere:
        yield from _labeled("note:", paint.note, printable(f"{note.place}: {note.message}"), paint)
    for note, made in others:
        at = f"{printable(entry.path)}:{source.part(note.span).place}"
        yield from _labeled("note:", paint.note, f"{at}: {printable(note.message)}", paint)
        yield from made.lines(paint, gutter, paint.note)
    if entry.fix is not None and diff is not None:
        yield from _advice(entry.fix, paint)
        yield from diff.lines(paint, gutter)


def _notes(
    entry: Entry, excerpt: Excerpt, paint: Paint, gutter: int
) -> tuple[list[Label], list[Note]]:
    """Return the notes to show in the excerpt, and those that need excerpts of their own."""
    inside: list[Label] = []
    apart: list[Note] = []
    for note in entry.notes_here:
        part = entry.source.part(note.span)
        label = Label(part.start, part.end, printable(note.message))
        same = part.source == excerpt.source and part.cell == entry.part.cell
        if same and excerpt.takes(label, paint, gutter):
            inside.append(label)
        else:
            apart.append(note)
    return inside, apart


def question(entry: Entry, paint: Paint) -> str:
    """Return a finding with the whole diff of its fix."""
    assert entry.fix is not None
    diff = FixDiff(entry.source, entry.fix, whole=True)
    lines = [*heading(entry, paint), *_advice(entry.fix, paint)]
    return "\n".join(["", *lines, *diff.lines(paint, gutter_width(diff.last_row))])


def _advice(fix: Fix, paint: Paint) -> Iterator[str]:
    """Return what a fix does, and its safety class."""
    title = printable(fix.title)
    because = f": {printable(fix.because)}" if fix.because else ""
    safety = f"({fix.safety.word}{because})"
    if paint.width is None or len(f"help: {title} {safety}") <= paint.width:
        yield f"{paint.help('help:')} {title} {paint.safety(safety, fix.safety.word)}"
        return
    yield from _labeled("help:", paint.help, title, paint)
    for line in wrapped(safety, paint.width, _HANGING):
        yield paint.safety(line, fix.safety.word)


def _labeled(word: str, style: Callable[[str], str], text: str, paint: Paint) -> Iterator[str]:
    """Return a sentence after a colored word, with a hanging indent."""
    if paint.width is None:
        yield f"{style(word)} {text}"
        return
    first, *rest = wrapped(text, paint.width, _HANGING) or [""]
    yield f"{style(word)} {first.lstrip()}"
    yield from rest


_HANGING: Final = len("help: ")
