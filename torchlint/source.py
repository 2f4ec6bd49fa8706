"""A source file as text that can be written back byte for byte."""

from __future__ import annotations

import bisect
import codecs
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from torchlint.record import Record
from torchlint.regex import regex

if TYPE_CHECKING:
    from torchlint.edit import Edit, Span

__all__ = ["Part", "Position", "Source", "SourceError"]

_LINE_END: Final = regex(r"\r\n?|\n")
_OF_HOSTS: Final = frozenset({"idna", "punycode"})
"""Encodings whose decoders take the square of the time that a text is long."""


class SourceError(Exception):
    """Bytes that are no Python source text: the message says why, `position` where."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position or Position(1, 1)


class Position(Record):
    """A place in a text: both numbers count from 1, columns count characters."""

    row: int
    column: int


class Part(Record):
    """A span in the part of its file that people look at: a cell of a notebook, else the file."""

    source: Source
    span: Span
    cell: int | None = None
    """The number of the cell, counted from 1 over cells of every kind."""

    @property
    def start(self) -> Position:
        """Where the span begins."""
        return self.source.position(self.span.start)

    @property
    def end(self) -> Position:
        """Where the span ends: the place after its last character."""
        return self.source.position(self.span.end)

    @property
    def place(self) -> str:
        """Row and column as a report says them: `4:1`, in a notebook `cell 3:4:1`."""
        place = f"{self.start.row}:{self.start.column}"
        return place if self.cell is None else f"cell {self.cell}:{place}"


@dataclass(frozen=True)
class Source:
    """The text of one file, with what is needed to write it back unchanged."""

    path: str
    text: str
    encoding: str = "utf-8"
    bom: bytes = field(default=b"", repr=False)

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Source:
        """Decode `data` as Python does, keeping its line ends; raises `SourceError`."""
        if b"\0" in data:
            before = data[: data.index(b"\0")]
            row = before.count(b"\n") + 1
            raise SourceError("the file holds a NUL byte", Position(row, 1))
        bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        except SyntaxError as error:
            raise SourceError(str(error)) from None
        if encoding == "utf-8-sig":
            encoding = "utf-8"
        if encoding in _OF_HOSTS:
            raise SourceError(f"{encoding} is for names of hosts, not for files")
        body = data[len(bom) :]
        try:
            text = body.decode(encoding)
            again = body if encoding == "utf-8" else text.encode(encoding)
        except UnicodeDecodeError as error:
            row = body[: error.start].count(b"\n") + 1
            raise SourceError(
                f"byte 0x{body[error.start]:02x} is not {encoding} text", Position(row, 1)
            ) from None
        except (LookupError, UnicodeError):
            raise SourceError(f"the file cannot be read as {encoding}") from None
        if again != body:
            raise SourceError(f"the text does not survive a round trip through {encoding}")
        return cls(path, text, encoding, bom)

    def to_bytes(self) -> bytes:
        """Give the bytes of the file; raises `SourceError` for text its encoding lacks."""
        try:
            return self.bom + self.text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise SourceError(
                f"{error.object[error.start]!r} is not {self.encoding} text"
            ) from None

    def with_text(self, text: str) -> Source:
        """Give the same file with another text."""
        return Source(self.path, text, self.encoding, self.bom)

    def edited(self, edits: Iterable[Edit]) -> Source:
        """Give the same file with edits made; raises `ValueError` when two of them clash."""
        from torchlint.edit import apply_edits

        return self.with_text(apply_edits(self.text, edits))

    def takes(self, edits: Iterable[Edit]) -> bool:
        """Whether edits of the text can be made in the file: those of a script can."""
        return True

    def part(self, span: Span) -> Part:
        """Give a span as people look at it."""
        return Part(self, span)

    def parts(self) -> list[tuple[int | None, Source]]:
        """Give what people look at, one after the other: the number of a cell, and its text."""
        return [(None, self)]

    def edits_by_part(
        self, edits: Iterable[Edit]
    ) -> list[tuple[int | None, Source, tuple[Edit, ...]]]:
        """Give edits as edits of the parts that they are in."""
        return [(None, self, tuple(edits))]

    @property
    def file_text(self) -> str:
        """The text of the whole file."""
        return self.text

    @property
    def is_notebook(self) -> bool:
        """Whether the text is that of the cells of a notebook."""
        return False

    @cached_property
    def newline(self) -> str:
        """The line end that the file uses first, a line feed for a file of one line."""
        for line in self.text.splitlines(keepends=True):
            for end in ("\r\n", "\n", "\r"):
                if line.endswith(end):
                    return end
        return "\n"

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset at which each line begins, as CPython counts lines."""
        if "\r" in self.text:
            return [0, *(end.end() for end in _LINE_END.finditer(self.text))]
        lines = self.text.split("\n")
        return list(accumulate([len(line) + 1 for line in lines[:-1]], initial=0))

    def position(self, offset: int) -> Position:
        """Give the row and column of a character offset."""
        row = bisect.bisect_right(self.line_starts, offset)
        return Position(row, offset - self.line_starts[row - 1] + 1)

    def offset(self, position: Position) -> int:
        """Give the character offset of a row and column."""
        return self.line_starts[position.row - 1] + position.column - 1

    def line(self, row: int) -> str:
        """Give the text of a line, counted from 1, without its end."""
        start = self.line_starts[row - 1]
        end = self.line_starts[row] if row < len(self.line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")
