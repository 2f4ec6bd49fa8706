"""The text of a source file, which can be written back byte for byte."""

from __future__ import annotations

import bisect
import codecs
import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

from torchlint.edit import Edit, Span, apply_edits

_LINE_END: Final = re.compile(r"\r\n?|\n")
_OF_HOSTS: Final = frozenset({"idna", "punycode"})
"""Encodings whose decoders take the square of the time that a text is long."""


class SourceError(Exception):
    """Bytes that are not Python source text; the message says why, `position` where."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position or Position(1, 1)


class Position(NamedTuple):
    """A row and column in a text, both counted from 1; columns count characters."""

    row: int
    column: int


class Part(NamedTuple):
    """A span within the text that a user sees: a notebook cell, or the whole of a script."""

    source: Source
    span: Span
    cell: int | None = None
    """The number of the cell, counted from 1 over cells of every kind."""

    @property
    def start(self) -> Position:
        """The place where the span begins."""
        return self.source.position(self.span.start)

    @property
    def end(self) -> Position:
        """The place after the last character of the span."""
        return self.source.position(self.span.end)

    @property
    def place(self) -> str:
        """Row and column as printed in reports: `4:1`, in a notebook `cell 3:4:1`."""
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
        """Decode `data` as Python does and keep its line ends; raise `SourceError` on failure."""
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
        """Encode the text; raise `SourceError` if the file's encoding lacks a character."""
        try:
            return self.bom + self.text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise SourceError(
                f"{error.object[error.start]!r} is not {self.encoding} text"
            ) from None

    def with_text(self, text: str) -> Source:
        """Return a copy of the file with another text."""
        return Source(self.path, text, self.encoding, self.bom)

    def edited(self, edits: Iterable[Edit]) -> Source:
        """Return a copy of the file with edits applied; raise `ValueError` if two clash."""
        return self.with_text(apply_edits(self.text, edits))

    def takes(self, edits: Iterable[Edit]) -> bool:
        """Return whether edits of the text can be made in the file; always true for scripts."""
        return True

    def part(self, span: Span) -> Part:
        """Return a span as a user sees it."""
        return Part(self, span)

    def parts(self) -> list[tuple[int | None, Source]]:
        """Return the number and the text of each part that a user sees, such as a cell."""
        return [(None, self)]

    def broken_parts(self) -> list[tuple[int, Source]]:
        """Return where each part that does not parse, though others do, begins, and its code."""
        return []

    def part_start(self, offset: int) -> int:
        """Return the offset at which the part that contains `offset` begins."""
        return 0

    def offset_of(self, part: int | None) -> int | None:
        """Return the offset at which a part begins, None for a cell without Python."""
        return 0

    def edits_by_part(
        self, edits: Iterable[Edit]
    ) -> list[tuple[int | None, Source, tuple[Edit, ...]]]:
        """Return edits grouped by the part of the file they are in."""
        return [(None, self, tuple(edits))]

    @property
    def file_text(self) -> str:
        """The text of the whole file."""
        return self.text

    @property
    def is_notebook(self) -> bool:
        """Whether the text comes from the cells of a notebook."""
        return False

    @property
    def hidden_words(self) -> frozenset[str]:
        """Words of the file that are missing from its text, such as those of notebook magics."""
        return frozenset()

    @cached_property
    def newline(self) -> str:
        """The first line end of the file; a line feed if it has a single line."""
        for line in self.text.splitlines(keepends=True):
            for end in ("\r\n", "\n", "\r"):
                if line.endswith(end):
                    return end
        return "\n"

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset at which each line begins, with lines split as CPython does."""
        if "\r" in self.text:
            return [0, *(end.end() for end in _LINE_END.finditer(self.text))]
        lines = self.text.split("\n")
        return list(accumulate([len(line) + 1 for line in lines[:-1]], initial=0))

    def position(self, offset: int) -> Position:
        """Return the row and column of a character offset."""
        row = bisect.bisect_right(self.line_starts, offset)
        return Position(row, offset - self.line_starts[row - 1] + 1)

    def offset(self, position: Position) -> int:
        """Return the character offset of a row and column."""
        return self.line_starts[position.row - 1] + position.column - 1

    def line(self, row: int) -> str:
        """Return the text of a line, counted from 1, without its end."""
        start = self.line_starts[row - 1]
        end = self.line_starts[row] if row < len(self.line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")
