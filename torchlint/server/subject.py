"""What is checked as one: the text of a script, or the cells of a notebook."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from lsprotocol import types
from pygls.workspace import PositionCodec

from torchlint.edit import Span
from torchlint.notebook.notebook import Notebook, written
from torchlint.source import Source


class Document(NamedTuple):
    """A text that the editor has open: a script, or a cell of a notebook."""

    uri: str
    version: int | None
    text: str


@dataclass(frozen=True)
class Subject:
    """The open documents that one check is about: a script alone, or all cells of a notebook."""

    uri: str
    path: Path
    documents: tuple[Document, ...]
    is_notebook: bool = False

    @cached_property
    def source(self) -> Source:
        """The text to check; the number of a cell is its place in `documents`."""
        if self.is_notebook:
            text = written(document.text for document in self.documents)
            return Notebook.from_bytes(text.encode(), str(self.path))
        (document,) = self.documents
        return Source(str(self.path), document.text, _encoding(document.text))

    @property
    def versions(self) -> list[int | None]:
        """The version of each document."""
        return [document.version for document in self.documents]

    def document(self, cell: int | None) -> Document:
        """Return the document of a cell, or that of the script."""
        return self.documents[0 if cell is None else cell - 1]

    def cell(self, uri: str) -> int | None:
        """Return the number of the cell of a document, None for a script."""
        if not self.is_notebook:
            return None
        return next((number for number, each in enumerate(self.documents, 1) if each.uri == uri), 0)


def _encoding(text: str) -> str:
    """Return the encoding that a text declares for its file, UTF-8 by default."""
    head = io.BytesIO(text.encode("utf-8", "surrogatepass"))
    try:
        return tokenize.detect_encoding(head.readline)[0]
    except SyntaxError:
        return "utf-8"


class Positions:
    """Converts offsets of a script or a notebook into an editor's positions, and back."""

    def __init__(self, subject: Subject, encoding: str) -> None:
        self.subject = subject
        self._codec = PositionCodec(encoding)
        self._texts = dict(subject.source.parts())
        self._lines: dict[int | None, list[str]] = {}

    def place(self, span: Span) -> types.Location:
        """Return the document and the range of a span."""
        part = self.subject.source.part(span)
        return types.Location(
            self.subject.document(part.cell).uri, self.range_in(part.cell, part.span)
        )

    def range_in(self, cell: int | None, span: Span) -> types.Range:
        """Return the range of a span of one cell, or of the script."""
        return types.Range(self._position(cell, span.start), self._position(cell, span.end))

    def offset(self, uri: str, position: types.Position) -> int | None:
        """Return the offset of a position in a document, None in a cell without Python.

        It is the nearest one where the position does not exist.
        """
        cell = self.subject.cell(uri)
        start = self.subject.source.offset_of(cell)
        if start is None:
            return None
        return start + offset_in(self._texts[cell], self._codec, position)

    def span(self, uri: str, place: types.Range) -> Span | None:
        """Return the span of a range, empty if it ends before it begins."""
        start, end = self.offset(uri, place.start), self.offset(uri, place.end)
        return None if start is None or end is None else Span(start, max(start, end))

    def _position(self, cell: int | None, offset: int) -> types.Position:
        source = self._texts[cell]
        if cell not in self._lines:
            rows = range(1, len(source.line_starts) + 1)
            self._lines[cell] = [f"{source.line(row)}\n" for row in rows]
        place = source.position(offset)
        ours = types.Position(place.row - 1, place.column - 1)
        return self._codec.position_to_client_units(self._lines[cell], ours)


def offset_in(source: Source, codec: PositionCodec, position: types.Position) -> int:
    """Return the offset of a position in a text, the nearest one where it does not exist."""
    starts = source.line_starts
    if position.line >= len(starts):
        return len(source.text)
    line = source.line(position.line + 1)
    theirs = types.Position(0, position.character)
    place = codec.position_from_client_units([f"{line}\n"], theirs)
    return starts[position.line] + min(place.character, len(line))
