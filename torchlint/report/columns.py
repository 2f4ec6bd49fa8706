"""Text in the columns of a terminal: tabs, wide characters, and lines that are too long."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple

from torchlint.report.escape import shown

_TAB: Final = 4


def _width(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _laid_out(line: str) -> tuple[list[str], list[int]]:
    """Return the printed form and the column of each character, and where the line ends."""
    texts: list[str] = []
    starts = [0]
    for character in line:
        if character == "\t":
            text = " " * (_TAB - starts[-1] % _TAB)
            width = len(text)
        else:
            text = shown(character)
            width = len(text) if len(text) > 1 else _width(character)
        texts.append(text)
        starts.append(starts[-1] + width)
    return texts, starts


class Cells:
    """A printed line of source, with the column of each character."""

    def __init__(self, line: str) -> None:
        self.shown: Sequence[str] = line
        self.starts: Sequence[int] = range(len(line) + 1)
        """The display column of each character, and of the end of the line."""
        if not (line.isascii() and line.isprintable()):
            self.shown, self.starts = _laid_out(line)

    @property
    def width(self) -> int:
        """The number of columns of the line."""
        return self.starts[-1]

    def column(self, column: int) -> int:
        """Return the display column, from 0, of a character column, from 1."""
        return self.starts[min(column - 1, len(self.shown))]


class Window(NamedTuple):
    """The printed display columns of an excerpt, from `left` on."""

    left: int
    width: int

    @classmethod
    def around(cls, start: int, end: int, width: int) -> Window:
        """Return a window of `width` columns that shows the columns from `start` to `end`."""
        if end <= width - 1:
            return cls(0, width)
        return cls(max(0, min(start - width // 4, end - width // 2)), width)

    @classmethod
    def ahead(cls, start: int, end: int, width: int) -> Window:
        """Return a window that shows the part from `start` on of a line that ends at `end`."""
        if end <= width:
            return cls(0, width)
        return cls(max(0, min(start - width // 4, end - width)), width)

    def clip(self, cells: Cells) -> str:
        """Return the part of a line inside the window, with cuts marked."""
        if self.left == 0 and cells.width <= self.width:
            return "".join(cells.shown).rstrip()
        first = self.left + (1 if self.left else 0)
        last = self.left + self.width - (1 if cells.width > self.left + self.width else 0)
        parts = ["…" if self.left else ""]
        at = first
        for text, start, end in zip(cells.shown, cells.starts, cells.starts[1:], strict=False):
            if start < first or end > last:
                continue
            parts.append(" " * (start - at) + text)
            at = end
        if last < self.left + self.width:
            parts.append(" " * (last - at) + "…")
        text = "".join(parts)
        return "" if text == "…" else text.rstrip()

    def place(self, column: int) -> int:
        """Return the position of a display column in the window, at its edge when outside."""
        return min(max(column - self.left, 0), self.width)
