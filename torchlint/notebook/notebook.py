"""A notebook as a source: its code cells, one after the other, are its text."""

from __future__ import annotations

import bisect
import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from torchlint.edit import Edit, Span, apply_edits
from torchlint.notebook.document import Document, scan
from torchlint.notebook.lines import rewritten
from torchlint.notebook.magics import masked, parsed
from torchlint.source import Part, Position, Source, SourceError

__all__ = ["Cell", "Notebook"]

_BORDER: Final = "0\n"
"""The statement between two cells: nothing is moved over it, no blank line is shared."""
_WORD: Final = re.compile(r"[^\W\d]\w*")
_BLOCK: Final = "if 1:\n"
"""What makes Python of a cell whose every line is indented, which IPython runs."""


@dataclass(frozen=True)
class Cell:
    """One code cell: what it holds, and the Python that stands for it in the notebook's text.

    A cell that is empty, or in another language, stands for nothing.
    """

    number: int
    text: str
    head: str = field(default="", repr=False)
    """A line of the code that is not in the cell: under it stands what is indented as a whole."""
    python: str = field(default="", repr=False)
    masks: tuple[Span, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, number: int, text: str) -> Cell:
        """Read a cell."""
        found = masked(text)
        if found is None or not text:
            return cls(number, text)
        python = f"{found.code}\n"
        indented = python.lstrip("\r\n").startswith((" ", "\t"))
        is_block = indented and parsed(python) is None and parsed(_BLOCK + python) is not None
        return cls(number, text, _BLOCK if is_block else "", python, found.masks)

    @property
    def code(self) -> str:
        """What stands for the cell in the notebook's text."""
        return self.head + self.python

    def edited(self, edits: Iterable[Edit]) -> Cell:
        """Give the cell with edits of its text made."""
        text = apply_edits(f"{self.text}\n", edits).removesuffix("\n")
        return Cell.of(self.number, text)

    def takes(self, edits: list[Edit]) -> bool:
        """Whether edits leave the commands of the cell as they are, and Python that parses."""
        if any(_touches(edit, mask) for edit in edits for mask in self.masks):
            return False
        after = self.edited(edits)
        commands, kept = self._commands(), after._commands()
        return commands == kept and (parsed(after.code) is not None or parsed(self.code) is None)

    def _commands(self) -> list[str]:
        return [self.text[mask.start : mask.end] for mask in self.masks]


def _touches(edit: Edit, mask: Span) -> bool:
    if edit.span.start == 0 == mask.start:
        return True
    return edit.span.start < mask.end and mask.start < edit.span.end


@dataclass(frozen=True)
class Notebook(Source):
    """The code cells of a notebook as the text of one script, and the file around them."""

    cells: tuple[Cell, ...] = ()
    document: Document = field(default_factory=Document, repr=False, compare=False)

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Notebook:
        """Read a notebook; raises `SourceError` for bytes that are none."""
        bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        document = scan(_decoded(data[len(bom) :]))
        cells = tuple(Cell.of(cell.number, cell.text) for cell in document.cells)
        return cls(path, _joined(cells), "utf-8", bom, cells, document)

    def to_bytes(self) -> bytes:
        """Give the bytes of the file: those it had, but for the lines that are others now."""
        return self.bom + self.file_text.encode()

    @property
    def file_text(self) -> str:
        """The JSON of the whole file."""
        parts: list[str] = []
        at = 0
        for now, cell in zip(self.cells, self.document.cells, strict=True):
            if now.text != cell.text:
                parts += [
                    self.document.text[at : cell.value.start],
                    rewritten(self.document, cell, now.text),
                ]
                at = cell.value.end
        return "".join([*parts, self.document.text[at:]])

    def edited(self, edits: Iterable[Edit]) -> Notebook:
        """Give the same notebook with edits made, each in its cell; raises `ValueError`."""
        groups = self._by_cell(edits)
        if groups is None:
            raise ValueError("an edit is in more than one cell")
        cells = tuple(
            cell.edited(groups[index]) if index in groups else cell
            for index, cell in enumerate(self.cells)
        )
        return replace(self, text=_joined(cells), cells=cells)

    def takes(self, edits: Iterable[Edit]) -> bool:
        """Whether each edit stays in a cell and off its commands, and all cells parse then."""
        edits = tuple(edits)
        groups = self._by_cell(edits)
        return (
            groups is not None
            and all(self.cells[index].takes(group) for index, group in groups.items())
            and not any(self._hides_use(edit) for edit in edits)
        )

    def part(self, span: Span) -> Part:
        """Give a span as a place in its cell; what lies outside that is cut off."""
        if not self._starts:
            return Part(self, span)
        at = self._at(span.start)
        start, index = self._starts[at]
        source, number = self._sources[index], self.cells[index].number
        length = len(self.cells[index].text)
        first = min(max(span.start - start, 0), length)
        last = min(max(span.end - start, first), length)
        return Part(source, Span(first, last), number)

    def parts(self) -> list[tuple[int | None, Source]]:
        """Give the cells."""
        return [
            (cell.number, source) for cell, source in zip(self.cells, self._sources, strict=True)
        ]

    def edits_by_part(
        self, edits: Iterable[Edit]
    ) -> list[tuple[int | None, Source, tuple[Edit, ...]]]:
        """Give edits as edits of the cells that they are in."""
        groups = self._by_cell(edits) or {}
        return [
            (self.cells[index].number, self._sources[index], tuple(groups[index]))
            for index in sorted(groups)
        ]

    @property
    def is_notebook(self) -> bool:
        """Whether the text is that of the cells of a notebook: it is."""
        return True

    def _hides_use(self, edit: Edit) -> bool:
        """Whether an edit takes out an import of which a command, or a cell of its own, speaks."""
        line = self.line(self.position(edit.span.start).row)
        if not line.lstrip().startswith(("import ", "from ")):
            return False
        gone = self.text[edit.span.start : edit.span.end].rpartition("import ")[2]
        return not self._hidden_words.isdisjoint(
            {*_WORD.findall(gone)} - {*_WORD.findall(edit.text)}
        )

    @cached_property
    def _hidden_words(self) -> frozenset[str]:
        """The words of what is not Python here."""
        hidden = [
            cell.text[mask.start : mask.end] for cell in self.cells for mask in cell.masks
        ] + [cell.text for cell in self.cells if not cell.code]
        return frozenset(word for text in hidden for word in _WORD.findall(text))

    @cached_property
    def _starts(self) -> list[tuple[int, int]]:
        """Where in the text each cell begins that has code, and which cell it is."""
        starts: list[tuple[int, int]] = []
        at = 0
        for index, cell in enumerate(self.cells):
            if cell.code:
                starts.append((at + len(cell.head), index))
                at += len(cell.code) + len(_BORDER)
        return starts

    @cached_property
    def _sources(self) -> list[Source]:
        """Each cell as people look at it, its last line ended as every line is."""
        return [Source(self.path, f"{cell.text}\n" if cell.text else "") for cell in self.cells]

    def _at(self, offset: int) -> int:
        """Give which of the cells with code an offset is in, or stands behind."""
        return max(bisect.bisect_right(self._starts, (offset, len(self.cells))) - 1, 0)

    def _by_cell(self, edits: Iterable[Edit]) -> dict[int, list[Edit]] | None:
        """Give edits as edits of the cells they are in; None where one is in no cell, or two."""
        groups: dict[int, list[Edit]] = {}
        for edit in edits:
            if not self._starts:
                return None
            start, index = self._starts[self._at(edit.span.start)]
            if edit.span.start < start:
                return None
            if edit.span.end > start + len(self.cells[index].python):
                return None
            span = Span(edit.span.start - start, edit.span.end - start)
            groups.setdefault(index, []).append(Edit(span, edit.text))
        return groups


def _joined(cells: Iterable[Cell]) -> str:
    return _BORDER.join(cell.code for cell in cells if cell.code)


def _decoded(body: bytes) -> str:
    if b"\0" in body:
        row = body[: body.index(b"\0")].count(b"\n") + 1
        raise SourceError("the file holds a NUL byte", Position(row, 1))
    if not body.strip():
        raise SourceError("the file is empty: a notebook is a JSON object")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        row = body[: error.start].count(b"\n") + 1
        raise SourceError(
            f"byte 0x{body[error.start]:02x} is not utf-8 text", Position(row, 1)
        ) from None
