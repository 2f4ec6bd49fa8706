"""The notebooks that are open in the editor, and the texts of their cells."""

from __future__ import annotations

from pathlib import Path

from lsprotocol import types
from pygls.uris import to_fs_path
from pygls.workspace import PositionCodec

from torchlint.server.subject import Document, Subject, offset_in
from torchlint.source import Source

_PYTHON = "python"


class Notebooks:
    """The open notebooks: the cells of each in their order, and the text of each cell."""

    def __init__(self) -> None:
        self._cells: dict[str, list[str]] = {}
        self._items: dict[str, types.TextDocumentItem] = {}

    def open(self, params: types.DidOpenNotebookDocumentParams) -> None:
        """Take a notebook in."""
        notebook = params.notebook_document
        self._cells[notebook.uri] = [cell.document for cell in notebook.cells]
        self._items.update((item.uri, item) for item in params.cell_text_documents)

    def change(self, params: types.DidChangeNotebookDocumentParams, encoding: str) -> list[str]:
        """Change a notebook, and return its cells that were closed."""
        changes = params.change.cells
        if changes is None:
            return []
        gone: list[str] = []
        if changes.structure is not None:
            array = changes.structure.array
            first, last = array.start, array.start + array.delete_count
            added = [cell.document for cell in array.cells or ()]
            self._cells[params.notebook_document.uri][first:last] = added
            self._items.update((item.uri, item) for item in changes.structure.did_open or ())
            gone = [each.uri for each in changes.structure.did_close or ()]
            for uri in gone:
                self._items.pop(uri, None)
        for content in changes.text_content or ():
            item = self._items[content.document.uri]
            item.version = content.document.version
            for change in content.changes:
                item.text = _changed(item.text, change, encoding)
        return gone

    def close(self, uri: str) -> None:
        """Forget a notebook and its cells."""
        for cell in self._cells.pop(uri, ()):
            self._items.pop(cell, None)

    def subject(self, uri: str) -> Subject | None:
        """Return what to check for a notebook, or for one of its cells."""
        notebook = next((key for key, cells in self._cells.items() if uri in (key, *cells)), None)
        if notebook is None:
            return None
        items = [self._items[cell] for cell in self._cells[notebook] if cell in self._items]
        documents = (
            Document(item.uri, item.version, item.text if item.language_id == _PYTHON else "")
            for item in items
        )
        path = Path(to_fs_path(notebook) or "untitled.ipynb").absolute()
        return Subject(notebook, path, tuple(documents), is_notebook=True)

    def uris(self) -> list[str]:
        """Return the open notebooks."""
        return list(self._cells)


def _changed(text: str, change: types.TextDocumentContentChangeEvent, encoding: str) -> str:
    """Return the text of a cell after one change of it."""
    if not isinstance(change, types.TextDocumentContentChangePartial):
        return change.text
    source, codec = Source("", text), PositionCodec(encoding)
    start, end = (
        offset_in(source, codec, place) for place in (change.range.start, change.range.end)
    )
    return f"{text[:start]}{change.text}{text[end:]}"
