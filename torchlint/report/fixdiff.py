"""One fix as a short diff: only the lines that its edits touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from torchlint.edit import Edit, apply_edits, in_order
from torchlint.finding import Fix
from torchlint.report.paint import Paint
from torchlint.report.text import Cells, Window
from torchlint.source import Source

_CONTEXT: Final = 1
_LEAST_MOVED: Final = 4
_MOST: Final = 24
_WIDTH: Final = 160
_LEAST: Final = 20


class _Line(NamedTuple):
    row: int
    sign: str
    text: str
    changed: int = 0
    """The number of characters before the first changed one."""


class FixDiff:
    """The lines before and after one fix, per cell in a notebook.

    Unless `whole`, the diff is cut short, and a block that is only indented differently becomes
    one line.
    """

    def __init__(self, source: Source, fix: Fix, whole: bool = False) -> None:
        self._whole = whole
        self._hunks: list[tuple[int | None, list[_Line]]] = []
        for cell, part, edits in source.edits_by_part(fix.edits):
            self._hunks += [(cell, hunk) for hunk in _Hunks(part, whole).of(edits)]

    @property
    def last_row(self) -> int:
        """The greatest line number that is printed."""
        return max((line.row for _, hunk in self._hunks for line in hunk), default=1)

    def lines(self, paint: Paint, gutter: int) -> Iterator[str]:
        """Return the printed lines; `gutter` is the width of the line numbers."""
        width = max((paint.width or _WIDTH) - gutter - 3, _LEAST)
        left = sum(len(hunk) for _, hunk in self._hunks) if self._whole else _MOST
        before: int | None = None
        for index, (cell, hunk) in enumerate(self._hunks):
            if cell != before and left > 0:
                yield f"{' ' * gutter} {paint.gutter(':::')} cell {cell}"
            elif index and left > 0:
                yield paint.gutter("." * max(gutter, 3))
            before = cell
            for line in hunk[: max(left, 0)]:
                yield _printed(line, paint, gutter, width)
            left -= len(hunk)
        if left < 0:
            lines = "1 more line" if left == -1 else f"{-left} more lines"
            yield " " * gutter + f" … {lines}: `torchlint fix` prints them all"


class _Hunks:
    """The blocks of lines that edits of one text change."""

    def __init__(self, source: Source, whole: bool) -> None:
        self._source = source
        self._whole = whole

    def of(self, edits: tuple[Edit, ...]) -> Iterator[list[_Line]]:
        """Yield the diff of each block."""
        shift = 0
        for rows, group in _row_groups(self._source, edits):
            hunk, moved = self._hunk(rows, group, shift)
            shift += moved
            if hunk:
                yield hunk

    def _hunk(self, rows: range, edits: list[Edit], shift: int) -> tuple[list[_Line], int]:
        """Return the diff of a block of lines, and by how many lines it moves what follows."""
        source = self._source
        start, end = source.line_starts[rows.start - 1], _line_end(source, rows.stop - 1)
        old = _split(source.text[start:end])
        new = _split(_replaced(source.text, start, end, edits))
        moved = len(new) - len(old)
        head = 0
        while head < min(len(old), len(new)) and old[head] == new[head]:
            head += 1
        tail = 0
        while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        first = rows.start + head
        last = rows.start + len(old) - tail
        if first == last and len(new) - tail == head:
            return [], moved
        removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
        before = _worth_showing(source, range(max(first - _CONTEXT, 1), first))
        end = min(last + _CONTEXT, len(source.line_starts) + 1)
        after = _worth_showing(source, range(last, end))
        return [
            *(_Line(row + shift, " ", source.line(row)) for row in before),
            *self._changed(first, removed, first + shift, added),
            *(_Line(row + shift + moved, " ", source.line(row)) for row in after),
        ], moved

    def _changed(
        self, row: int, removed: list[str], new_row: int, added: list[str]
    ) -> Iterator[_Line]:
        """Return the removed and added lines of a block, with merely indented ones as one line."""
        at = new = 0
        for start, new_start, size in () if self._whole else _moved(removed, added):
            yield from _replaced_lines(
                row + at, removed[at:start], new_row + new, added[new:new_start]
            )
            yield _Line(
                new_row + new_start, "~", _move_note(removed[start], added[new_start], size)
            )
            at, new = start + size, new_start + size
        yield from _replaced_lines(row + at, removed[at:], new_row + new, added[new:])


def _moved(removed: list[str], added: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the start and length of runs of lines that differ in their indentation only."""
    if min(len(removed), len(added)) < _LEAST_MOVED:
        return
    old, new = ([line.lstrip() for line in lines] for lines in (removed, added))
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        if block.size >= _LEAST_MOVED:
            yield block.a, block.b, block.size


def _move_note(old: str, new: str, size: int) -> str:
    shift = len(new) - len(old)
    where = "right" if shift > 0 else "left"
    return f"… {size} lines move {abs(shift)} columns to the {where}"


def _replaced_lines(
    row: int, removed: list[str], new_row: int, added: list[str]
) -> Iterator[_Line]:
    yield from _signed("-", row, removed, added)
    yield from _signed("+", new_row, added, removed)


def _printed(line: _Line, paint: Paint, gutter: int, width: int) -> str:
    cells = Cells(line.text)
    indent = len(line.text) - len(line.text.lstrip())
    start = cells.column(max(line.changed, indent) + 1)
    window = Window.ahead(start if line.sign in "+-" else 0, cells.width, width)
    text = f"{line.sign} {window.clip(cells)}".rstrip()
    if line.sign == "~":
        return f"{' ' * gutter}   {paint.gutter(line.text)}"
    if line.sign == " ":
        return f"{paint.gutter(f'{line.row:>{gutter}}')} {text}".rstrip()
    paint_line = paint.added if line.sign == "+" else paint.removed
    return f"{paint.gutter(f'{line.row:>{gutter}}')} {paint_line(text)}"


def _signed(sign: str, row: int, lines: list[str], others: list[str]) -> Iterator[_Line]:
    for at, text in enumerate(lines):
        other = others[at] if at < len(others) else ""
        pairs = enumerate(zip(text, other, strict=False))
        shorter = min(len(text), len(other))
        same = next((place for place, (old, new) in pairs if old != new), shorter)
        yield _Line(row + at, sign, text, same)


def _worth_showing(source: Source, rows: Iterable[int]) -> list[int]:
    return [row for row in rows if source.line(row).strip()]


def _line_end(source: Source, row: int) -> int:
    return source.line_starts[row] if row < len(source.line_starts) else len(source.text)


def _replaced(text: str, start: int, end: int, edits: list[Edit]) -> str:
    whole = apply_edits(text, edits)
    return whole[start : len(whole) - (len(text) - end)]


def _split(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _row_groups(source: Source, edits: tuple[Edit, ...]) -> Iterator[tuple[range, list[Edit]]]:
    """Return the blocks of lines that edits touch; blocks with shared context are merged."""
    rows = range(0)
    group: list[Edit] = []
    for edit in in_order(edits):
        first = source.position(edit.span.start).row
        last = source.position(edit.span.end).row
        if group and first <= rows.stop + 2 * _CONTEXT - 1:
            rows = range(rows.start, max(rows.stop, last + 1))
            group.append(edit)
        else:
            if group:
                yield rows, group
            rows, group = range(first, last + 1), [edit]
    if group:
        yield rows, group
