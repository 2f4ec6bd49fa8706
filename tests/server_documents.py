"""Documents for the server, and edits made as an editor makes them."""

from __future__ import annotations

from collections.abc import Iterable

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
