"""Rows of the checklist: one technique and its state in a script."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torchlint.edit import Span
from torchlint.engine.ownpart import as_given
from torchlint.semantic.script import Script
from torchlint.source import Source


class Status(Enum):
    """The state of a technique in a script."""

    IN_USE = "in use"
    MISSING = "missing"
    NOT_APPLICABLE = "not applicable"
    CANNOT_TELL = "cannot tell"


class Basis(Enum):
    """What the state of a technique rests on."""

    CODE = "code that shows it"
    NO_FINDING = "that nothing was found against it, or for it"
    ELSEWHERE = "nothing: what it is about is not in the file"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the checklist."""

    family: str
    technique: str
    articles: tuple[str, ...]
    """Sources that describe the technique: `S3.7` is the seventh tip of article S3."""
    status: Status
    line: int | None
    why: str
    rules: tuple[str, ...] = ()
    """The codes of rules that report it missing, none where no rule does."""
    gain: str = ""
    """The measured gain of a missing technique, or a cited one."""
    cell: int | None = None
    """The notebook cell in which the line is counted."""
    path: str = ""
    """The file of the line, if it is not the audited one."""
    basis: Basis = Basis.CODE
    worth: float = 0.0
    """What a missing technique is worth: the measured speed-up, else below 1 by the impact."""

    @property
    def place(self) -> str:
        """The place to look at: `4`, or `3:4` for the fourth line of cell 3."""
        return "" if self.path else self._line

    @property
    def elsewhere(self) -> str:
        """The place to look at if it is in another file: `model.py:4`."""
        return f"{self.path}:{self._line}" if self.path else ""

    @property
    def _line(self) -> str:
        if self.line is None:
            return ""
        return f"{self.line}" if self.cell is None else f"{self.cell}:{self.line}"


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
