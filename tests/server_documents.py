"""Documents for the server, and edits made as an editor makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from editor import Editor
from lsprotocol import types

TRAIN = """\
import torch
from torch import nn; from torchvision import datasets
from torch.utils.data import DataLoader

device, data = "cuda", {"😀": datasets.FakeData()}
model = nn.Linear(4, 1).to(device)
loader = DataLoader(data["😀"], batch_size=4)
for batch in loader:
    loss = model(batch.to(device)).sum()
    loss.backward()
    print("😀", loss.item())
"""
QUIET = "import torch\n"
PINNED = 'data["😀"], batch_size=4, pin_memory=torch.cuda.is_available())'
START = types.Position(0, 0)
EVERYTHING = types.Range(START, types.Position(1000, 0))


def codes(published: types.PublishDiagnosticsParams) -> list[str]:
    """Return the codes of what was published."""
    return [str(each.code) for each in published.diagnostics]


def find(published: types.PublishDiagnosticsParams, code: str) -> types.Diagnostic:
    """Return the one diagnostic of a code."""
    (found,) = (each for each in published.diagnostics if each.code == code)
    return found


def offset(text: str, position: types.Position, encoding: str = "utf-16-le") -> int:
    """Return the character offset of a position, whose column counts units of an encoding."""
    unit = {"utf-8": 1, "utf-16-le": 2, "utf-32-le": 4}[encoding]
    lines = text.replace("\r\n", "\n\n").replace("\r", "\n").split("\n")
    if "\r\n" in text:
        lines = lines[::2]
    ends = [len(line) + (2 if "\r\n" in text else 1) for line in lines]
    before = lines[position.line].encode(encoding)[: position.character * unit]
    return sum(ends[: position.line]) + len(before.decode(encoding))


def applied(text: str, edits: Iterable[types.TextEdit], encoding: str = "utf-16-le") -> str:
    """Return a text with edits made from its end to its beginning."""
    places = [
        (
            offset(text, edit.range.start, encoding),
            offset(text, edit.range.end, encoding),
            edit.new_text,
        )
        for edit in edits
    ]
    for start, end, new in sorted(places, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def edits_of(action: types.CodeAction, uri: str, version: int) -> list[types.TextEdit]:
    """Return the edits of an action, which must be for this version of the document."""
    assert action.edit is not None
    (change,) = action.edit.document_changes or ()
    assert isinstance(change, types.TextDocumentEdit)
    assert (change.text_document.uri, change.text_document.version) == (uri, version)
    return [edit for edit in change.edits if isinstance(edit, types.TextEdit)]


class Pages:
    """A notebook that the editor has open."""

    def __init__(self, editor: Editor, path: Path) -> None:
        self.editor = editor
        self.uri = path.as_uri()

    def cell(self, number: int) -> str:
        return f"vscode-notebook-cell:{self.uri.removeprefix('file:')}#{number}"

    def open(self, *texts: str, languages: Sequence[str] = ()) -> None:
        words = [*languages, *["python"] * (len(texts) - len(languages))]
        cells = [self._cell(number) for number in range(len(texts))]
        items = [
            types.TextDocumentItem(self.cell(number), word, 1, text)
            for number, (text, word) in enumerate(zip(texts, words, strict=True))
        ]
        notebook = types.NotebookDocument(self.uri, "jupyter-notebook", 1, cells)
        params = types.DidOpenNotebookDocumentParams(notebook, items)
        self.editor.call(self.editor.client.notebook_document_did_open, params)

    def change(self, change: types.NotebookDocumentCellChanges) -> None:
        document = types.VersionedNotebookDocumentIdentifier(2, self.uri)
        params = types.DidChangeNotebookDocumentParams(
            document, types.NotebookDocumentChangeEvent(cells=change)
        )
        self.editor.call(self.editor.client.notebook_document_did_change, params)

    def type(self, number: int, place: types.Range | None, text: str, version: int = 2) -> None:
        """Replace a range of a cell, or all of it."""
        change: types.TextDocumentContentChangeEvent = (
            types.TextDocumentContentChangeWholeDocument(text)
            if place is None
            else types.TextDocumentContentChangePartial(place, text)
        )
        document = types.VersionedTextDocumentIdentifier(version, self.cell(number))
        content = types.NotebookDocumentCellContentChanges(document, [change])
        self.change(types.NotebookDocumentCellChanges(text_content=[content]))

    def remove(self, number: int) -> None:
        gone = types.TextDocumentIdentifier(self.cell(number))
        array = types.NotebookCellArrayChange(number, 1)
        structure = types.NotebookDocumentCellChangeStructure(array, did_close=[gone])
        self.change(types.NotebookDocumentCellChanges(structure=structure))

    def close(self, cells: int) -> None:
        gone = [types.TextDocumentIdentifier(self.cell(number)) for number in range(cells)]
        params = types.DidCloseNotebookDocumentParams(
            types.NotebookDocumentIdentifier(self.uri), gone
        )
        self.editor.call(self.editor.client.notebook_document_did_close, params)

    def codes(self, number: int) -> list[object]:
        return [each.code for each in self.editor.diagnostics(self.cell(number)).diagnostics]

    def _cell(self, number: int) -> types.NotebookCell:
        return types.NotebookCell(types.NotebookCellKind.Code, self.cell(number))
