"""Places of a text in the units that an editor counts columns in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lsprotocol import types

from torchlint.edit import Span
from torchlint.source import Source

__all__ = ["Positions"]

_UNITS: Final[dict[str, Callable[[str], int]]] = {
    "utf-8": lambda text: len(text.encode("utf-8", "surrogatepass")),
    "utf-16": lambda text: len(text.encode("utf-16-le", "surrogatepass")) // 2,
    "utf-32": len,
}
"""How many columns a text takes, by the encoding that the editor agreed to."""


class Positions:
    """Turns offsets of one text into an editor's positions, and back."""

    def __init__(self, source: Source, encoding: str) -> None:
        self.source = source
        self._units = _UNITS[encoding]

    def position(self, offset: int) -> types.Position:
        """Give the position of a character offset."""
        place = self.source.position(offset)
        before = self.source.line(place.row)[: place.column - 1]
        return types.Position(place.row - 1, self._units(before))

    def range(self, span: Span) -> types.Range:
        """Give the range of a span."""
        return types.Range(self.position(span.start), self.position(span.end))

    def offset(self, position: types.Position) -> int:
        """Give the character offset of a position, the nearest one where the text has no such."""
        starts = self.source.line_starts
        if position.line >= len(starts):
            return len(self.source.text)
        line = self.source.line(position.line + 1)
        if line.isascii():
            return starts[position.line] + min(position.character, len(line))
        used = 0
        for at, character in enumerate(line):
            if used >= position.character:
                return starts[position.line] + at
            used += self._units(character)
        return starts[position.line] + len(line)

    def span(self, place: types.Range) -> Span:
        """Give the span of a range; one that ends before it begins is empty."""
        start = self.offset(place.start)
        return Span(start, max(start, self.offset(place.end)))
