"""Line numbers of an audited file, as people find them."""

from __future__ import annotations

from torchlint.edit import Span
from torchlint.engine.ownpart import as_given
from torchlint.semantic.script import Script
from torchlint.source import Source


class Line(int):
    """A line, counted over all the code of a file; in a notebook, counted within its cell.

    `path` is that of another file if the line is one of a definition that is linked.
    """

    cell: int | None
    row: int
    path: str

    @classmethod
    def of(cls, source: Source, offset: int) -> Line:
        """Return the line of an offset in the text."""
        line = cls(source.position(offset).row)
        part = source.part(Span(offset, offset))
        line.cell, line.row, line.path = part.cell, part.start.row, ""
        return line

    @classmethod
    def in_program(cls, script: Script, offset: int) -> Line:
        """Return the line of an offset in the text of a file or of what is linked to it."""
        if offset < len(script.source.text):
            return cls.of(script.source, offset)
        place = script.tree.place_at(offset)
        line = cls(place.row)
        line.cell, line.row = None, place.row
        line.path = as_given(place.path, script.tree.view.path, script.source.path)
        return line

    def __str__(self) -> str:
        if self.path:
            return f"{self.row} of {self.path}"
        return f"{self.row}" if self.cell is None else f"{self.row} of cell {self.cell}"
