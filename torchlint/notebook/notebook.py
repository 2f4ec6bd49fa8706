"""A notebook as a source, whose text is the concatenation of its code cells."""

from __future__ import annotations

import bisect
import codecs
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from torchlint.edit import Edit, Span, apply_edits
from torchlint.notebook.document import Document, rewritten, scan
from torchlint.notebook.magics import blanked, masked, parsed
from torchlint.source import Part, Position, Source, SourceError

_BORDER: Final = "0\n"
"""The statement between two cells: no fix moves code across it or merges blank lines."""
_WORD: Final = re.compile(r"[^\W\d]\w*")
_BLOCK: Final = "if 1:\n"
"""Makes Python of a cell in which every line is indented, which IPython accepts."""
_RENAMED: Final = re.compile(r"\basync\s*=")
"""An argument that a fix renames, so that its cell parses."""


@dataclass(frozen=True)
class Cell:
    """One code cell: its content, and the Python for it in the notebook's text.

    A cell that is empty, or in another language, contributes nothing, and one that does not parse
    an empty statement: IPython runs the others.
    """

    number: int
    text: str
    head: str = field(default="", repr=False)
    """A line of the code that is not in the cell, above code that is indented as a whole."""
    python: str = field(default="", repr=False)
    masks: tuple[Span, ...] = field(default=(), repr=False)
    broken: str = field(default="", repr=False)
    """The code of a cell that does not parse."""

    @classmethod
    def of(cls, number: int, text: str) -> Cell:
        """Return the cell with this text."""
        found = masked(text)
        if found is None or not text:
            return cls(number, text)
        python = f"{found.code}\n"
        indented = python.lstrip("\r\n").startswith((" ", "\t"))
        head = _BLOCK if indented and parsed(python) is None else ""
        if parsed(head + python) is not None or _RENAMED.search(text):
            return cls(number, text, head, python, found.masks)
        blank = f"{blanked(text, '0')}\n"
        return cls(number, text, "", blank, (Span(0, len(text)),), python)

    @property
    def code(self) -> str:
        """The Python for the cell in the notebook's text."""
        return self.head + self.python

    def edited(self, edits: Iterable[Edit]) -> Cell:
        """Return the cell with edits of its text applied."""
        text = apply_edits(f"{self.text}\n", edits).removesuffix("\n")
        return Cell.of(self.number, text)

    def takes(self, edits: list[Edit]) -> bool:
        """Return whether edits keep the commands of the cell, and leave Python that parses."""
        if any(_touches(edit, mask) for edit in edits for mask in self.masks):
            return False
        after = self.edited(edits)
        commands, kept = self._commands(), after._commands()
        return commands == kept and (not after.broken or bool(self.broken))

    def _commands(self) -> list[str]:
        return [self.text[mask.start : mask.end] for mask in self.masks]


def _touches(edit: Edit, mask: Span) -> bool:
    if edit.span.start == 0 == mask.start:
        return True
    return edit.span.start < mask.end and mask.start < edit.span.end


@dataclass(frozen=True)
class Notebook(Source):
    """The code cells of a notebook as the text of one script, and the file they come from."""

    cells: tuple[Cell, ...] = ()
    document: Document = field(default_factory=Document, repr=False, compare=False)

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Notebook:
        """Read a notebook; raise `SourceError` if the bytes are not one."""
        bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        text = _decoded(data[len(bom) :])
        document = scan(text) if text.strip() else Document(text)
        cells = tuple(Cell.of(cell.number, cell.text) for cell in document.cells)
        return cls(path, _joined(cells), "utf-8", bom, cells, document)

    def to_bytes(self) -> bytes:
        """Return the bytes of the file; only changed lines differ."""
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
        """Return the notebook with edits applied, each in its cell; raises `ValueError`."""
        groups = self._by_cell(edits)
        if groups is None:
            raise ValueError("an edit is in more than one cell")
        cells = tuple(
            cell.edited(groups[index]) if index in groups else cell
            for index, cell in enumerate(self.cells)
        )
        return replace(self, text=_joined(cells), cells=cells)

    def takes(self, edits: Iterable[Edit]) -> bool:
        """Return whether each edit stays in one cell, off its commands, and all cells parse."""
        groups = self._by_cell(edits)
        return groups is not None and all(
            self.cells[index].takes(group) for index, group in groups.items()
        )

    def part(self, span: Span) -> Part:
        """Return a span within its cell; what lies outside is cut off."""
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
        """Return the cells."""
        return [
            (cell.number, source) for cell, source in zip(self.cells, self._sources, strict=True)
        ]

    def edits_by_part(
        self, edits: Iterable[Edit]
    ) -> list[tuple[int | None, Source, tuple[Edit, ...]]]:
        """Return edits grouped by the cell they are in."""
        groups = self._by_cell(edits) or {}
        return [
            (self.cells[index].number, self._sources[index], tuple(groups[index]))
            for index in sorted(groups)
        ]

    @property
    def is_notebook(self) -> bool:
        """Whether the text comes from the cells of a notebook: always true here."""
        return True

    def broken_parts(self) -> list[tuple[int, Source]]:
        """Return where each cell that does not parse begins, and its code."""
        return [
            (start, Source("", self.cells[index].broken))
            for start, index in self._starts
            if self.cells[index].broken
        ]

    def part_start(self, offset: int) -> int:
        """Return the offset at which the cell that contains `offset` begins."""
        return self._starts[self._at(offset)][0] if self._starts else 0

    def offset_of(self, part: int | None) -> int | None:
        """Return the offset at which the text of a cell begins, None without Python."""
        found = (start for start, index in self._starts if self.cells[index].number == part)
        return next(found, None)

    @cached_property
    def hidden_words(self) -> frozenset[str]:
        """The words in commands, and in cells of other languages."""
        hidden = [
            cell.text[mask.start : mask.end] for cell in self.cells for mask in cell.masks
        ] + [cell.text for cell in self.cells if not cell.code]
        return frozenset(word for text in hidden for word in _WORD.findall(text))

    @cached_property
    def _starts(self) -> list[tuple[int, int]]:
        """The offset and the cell for each cell with code."""
        starts: list[tuple[int, int]] = []
        at = 0
        for index, cell in enumerate(self.cells):
            if cell.code:
                starts.append((at + len(cell.head), index))
                at += len(cell.code) + len(_BORDER)
        return starts

    @cached_property
    def _sources(self) -> list[Source]:
        """Each cell as a user sees it, with a line end after its last line."""
        return [Source(self.path, f"{cell.text}\n" if cell.text else "") for cell in self.cells]

    def _at(self, offset: int) -> int:
        """Return the index of the cell with code that an offset is in or follows."""
        return max(bisect.bisect_right(self._starts, (offset, len(self.cells))) - 1, 0)

    def _by_cell(self, edits: Iterable[Edit]) -> dict[int, list[Edit]] | None:
        """Return edits grouped by cell; None if one is in no cell or in two."""
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


def written(cells: Iterable[str]) -> str:
    """Return the file of a notebook that has these code cells."""
    empty: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}}
    made = [{**empty, "outputs": [], "source": cell} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def _joined(cells: Iterable[Cell]) -> str:
    return _BORDER.join(cell.code for cell in cells if cell.code)


def _decoded(body: bytes) -> str:
    if b"\0" in body:
        row = body[: body.index(b"\0")].count(b"\n") + 1
        raise SourceError("the file holds a NUL byte", Position(row, 1))
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        row = body[: error.start].count(b"\n") + 1
        raise SourceError(
            f"byte 0x{body[error.start]:02x} is not utf-8 text", Position(row, 1)
        ) from None
