"""Text that fits a terminal and cannot control it: escapes, wrapped lines, columns."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple

_PLAIN: Final = re.compile(r"[ -~]*")
_TAB: Final = 4
_LEAST: Final = 30


def shown(character: str) -> str:
    """Return a character, or its escape where it is not visible."""
    if character == " " or character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def printable(text: str) -> str:
    """Return `text` on one line, with everything invisible escaped."""
    return text if _PLAIN.fullmatch(text) else "".join(map(shown, text))


def github_message(text: str) -> str:
    """Return `text` as the message of a GitHub workflow command."""
    return "".join(
        f"%{ord(character):02X}" if character in "%\r\n" else shown(character) for character in text
    )


def github_property(text: str) -> str:
    """Return `text` as a property's value in a GitHub workflow command."""
    return github_message(text).replace(":", "%3A").replace(",", "%2C")


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


def wrapped(text: str, width: int, indent: int) -> list[str]:
    """Return a sentence as indented lines that fit, wrapped between words where possible."""
    return textwrap.wrap(
        text,
        max(width, indent + _LEAST),
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
