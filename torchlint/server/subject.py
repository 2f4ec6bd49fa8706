"""What is checked as one: the text of a script, or the cells of a notebook."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

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
