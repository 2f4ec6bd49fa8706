"""Line numbers of an audited file, as people find them."""

from __future__ import annotations

from torchlint.edit import Span
from torchlint.source import Source

__all__ = ["Line"]


class Line(int):
    """A line, counted over all the code of a file; in a notebook, counted within its cell."""

    cell: int | None
    row: int

    @classmethod
    def of(cls, source: Source, offset: int) -> Line:
        """Return the line of an offset in the text."""
        line = cls(source.position(offset).row)
        part = source.part(Span(offset, offset))
        line.cell, line.row = part.cell, part.start.row
        return line

    def __str__(self) -> str:
        return f"{self.row}" if self.cell is None else f"{self.row} of cell {self.cell}"
