"""Conversion of text positions to the units in which an editor counts columns."""

from __future__ import annotations

from functools import cached_property

from lsprotocol import types
from pygls.workspace import PositionCodec

from torchlint.edit import Span
from torchlint.source import Source


class Positions:
    """Converts offsets of one text into an editor's positions, and back."""

    def __init__(self, source: Source, encoding: str) -> None:
        self.source = source
        self._codec = PositionCodec(encoding)

    @cached_property
    def _lines(self) -> list[str]:
        rows = range(1, len(self.source.line_starts) + 1)
        return [f"{self.source.line(row)}\n" for row in rows]

    def position(self, offset: int) -> types.Position:
        """Return the position of a character offset."""
        place = self.source.position(offset)
        ours = types.Position(place.row - 1, place.column - 1)
        return self._codec.position_to_client_units(self._lines, ours)

    def range(self, span: Span) -> types.Range:
        """Return the range of a span."""
        return types.Range(self.position(span.start), self.position(span.end))

    def offset(self, position: types.Position) -> int:
        """Return the character offset of a position, the nearest one where it does not exist."""
        starts = self.source.line_starts
        if position.line >= len(starts):
            return len(self.source.text)
        theirs = types.Position(position.line, position.character)
        place = self._codec.position_from_client_units(self._lines, theirs)
        line = self.source.line(position.line + 1)
        return starts[position.line] + min(place.character, len(line))

    def span(self, place: types.Range) -> Span:
        """Return the span of a range, empty if it ends before it begins."""
        start = self.offset(place.start)
        return Span(start, max(start, self.offset(place.end)))
