"""A finding for people: with its source, its notes and its fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

from torchlint.edit import Span
from torchlint.finding import Fix, Note
from torchlint.report.entry import Entry
from torchlint.report.fixdiff import FixDiff
from torchlint.report.lines import heading
from torchlint.report.paint import Paint
from torchlint.report.text import Cells, Window, printable, wrapped
from torchlint.source import Position, Source

_CONTEXT: Final = 2
_HEAD: Final = 4
_TAIL: Final = 2
_WIDTH: Final = 160
_LEAST: Final = 20


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


def gutter_width(*rows: int) -> int:
    """Return the number of columns for line numbers up to the greatest of `rows`."""
    return len(str(max(rows)))


class Label(NamedTuple):
    """A second range on one line of an excerpt, and its message."""

    start: Position
    end: Position
    message: str


@dataclass(frozen=True)
class Excerpt:
    """The lines around a range, with the range marked by `sign`."""

    source: Source
    start: Position
    end: Position
    sign: str = "^"
    context: int = _CONTEXT
    labels: tuple[Label, ...] = ()

    @classmethod
    def of(cls, source: Source, span: Span, sign: str = "^", context: int = _CONTEXT) -> Excerpt:
        """Return the excerpt of a span; an end at a line break is moved before it."""
        part = source.part(span)
        source, start, end = part.source, part.start, part.end
        if end.column == 1 and end.row > start.row:
            last = source.line(end.row - 1)
            end = Position(end.row - 1, len(last) + 1)
        return cls(source, start, end, sign, context)

    @property
    def last_row(self) -> int:
        """The last line that is printed."""
        return self._rows[-1]

    def takes(self, label: Label, paint: Paint, gutter: int) -> bool:
        """Return whether a label fits beside the range, on a line that is printed anyway."""
        row = label.start.row
        if self._multi or label.end.row != row or row not in self._rows:
            return False
        width = self._width(paint, gutter)
        window = self._window(width)
        cells = Cells(self.source.line(row))
        left, right = cells.column(label.start.column), cells.column(label.end.column)
        if left < window.left or right > window.left + width:
            return False
        return paint.width is None or right - window.left + 1 + len(label.message) <= width

    def lines(self, paint: Paint, gutter: int, mark: Callable[[str], str]) -> Iterator[str]:
        """Return the printed lines; `gutter` is the width of the line numbers."""
        multi = self._multi
        window = self._window(self._width(paint, gutter))
        edge = " " * gutter + " " + paint.gutter("|")
        yield edge
        previous = 0
        for row in self._rows:
            if previous and row > previous + 1:
                yield paint.gutter("." * max(gutter, 3))
            previous = row
            number = paint.gutter(f"{row:>{gutter}} |")
            text = window.clip(Cells(self.source.line(row)))
            bar = self._bar(row, mark) if multi else ""
            yield f"{number} {bar}{text}".rstrip()
            below = self._below(row, window, multi)
            if below:
                yield f"{edge} {mark(below)}"
            for label in self.labels:
                if label.start.row == row:
                    yield f"{edge} {paint.note(self._label(label, window))}"
        yield edge

    @property
    def _multi(self) -> bool:
        return self.end.row > self.start.row

    def _width(self, paint: Paint, gutter: int) -> int:
        margin = gutter + 3 + (2 if self._multi else 0)
        return max((paint.width or _WIDTH) - margin, _LEAST)

    def _label(self, label: Label, window: Window) -> str:
        cells = Cells(self.source.line(label.start.row))
        left = window.place(cells.column(label.start.column))
        right = window.place(cells.column(label.end.column))
        return f"{' ' * left}{'-' * max(right - left, 1)} {label.message}"

    @cached_property
    def _rows(self) -> list[int]:
        first, last = self.start.row, self.end.row
        before = list(range(max(first - self.context, 1), first))
        end = min(last + self.context, len(self.source.line_starts))
        after = list(range(last + 1, end + 1))
        while before and not self.source.line(before[0]).strip():
            del before[0]
        while after and not self.source.line(after[-1]).strip():
            del after[-1]
        inside = list(range(first, last + 1))
        if len(inside) > _HEAD + _TAIL + 1:
            inside = inside[:_HEAD] + inside[-_TAIL:]
        return before + inside + after

    def _window(self, width: int) -> Window:
        start = Cells(self.source.line(self.start.row)).column(self.start.column)
        if self._multi:
            return Window.around(start, start + 1, width)
        end = Cells(self.source.line(self.end.row)).column(self.end.column)
        return Window.around(start, end, width)

    def _starts_line(self) -> bool:
        return not self.source.line(self.start.row)[: self.start.column - 1].strip()

    def _bar(self, row: int, mark: Callable[[str], str]) -> str:
        if row == self.start.row and self._starts_line():
            return mark("/") + " "
        return mark("|") + " " if self.start.row < row <= self.end.row else "  "

    def _below(self, row: int, window: Window, multi: bool) -> str:
        if row != self.start.row and not (multi and row == self.end.row):
            return ""
        cells = Cells(self.source.line(row))
        if not multi:
            left = window.place(cells.column(self.start.column))
            right = window.place(cells.column(self.end.column))
            return " " * left + self.sign * max(right - left, 1)
        if row == self.start.row and not self._starts_line():
            return " " + "_" * (window.place(cells.column(self.start.column)) + 1) + self.sign
        if row == self.start.row:
            return ""
        last = max(self.end.column - 1, 1)
        place = min(window.place(cells.column(last)), window.width - 1)
        return "|" + "_" * (place + 1) + self.sign


def full(entries: Sequence[Entry], paint: Paint) -> str:
    """Return the findings of a file in full, separated by blank lines."""
    return "\n".join("\n".join(block(entry, paint)) + "\n" for entry in entries)
