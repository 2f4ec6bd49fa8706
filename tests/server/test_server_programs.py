"""An open document is judged with the other modules of its project, as the editor shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from editor import Editor
from lsprotocol import types
from server_documents import codes, find
from small_program import DATA, HELPERS, TRAIN, write

UNPINNED = DATA.replace("pin_memory=True", "pin_memory=False")


@pytest.fixture
def folder(vscode: Editor, workspace: Path, tmp_path: Path) -> Iterator[Path]:
    """Return a folder with the program on the disk."""
    write(tmp_path)
    yield tmp_path
    for name in ("data.py", "helpers.py", "train.py"):
        vscode.close((tmp_path / name).as_uri())


def test_a_note_leads_to_the_line_of_another_file(vscode: Editor, folder: Path) -> None:
    uri = (folder / "helpers.py").as_uri()
    vscode.open(uri, HELPERS)
    found = find(vscode.diagnostics(uri), "TL203")
    (related,) = found.related_information or ()
    assert related.message == "the loop that runs this in every step"
    assert related.location.uri == (folder / "train.py").as_uri()
    assert related.location.range.start == types.Position(6, 0)


def test_a_change_in_one_document_shows_in_the_others(vscode: Editor, folder: Path) -> None:
    data, train = ((folder / name).as_uri() for name in ("data.py", "train.py"))
    vscode.open(train, TRAIN)
    assert "TL204" in codes(vscode.diagnostics(train))
    vscode.open(data, DATA)
    assert vscode.is_quiet(train)
    vscode.change(data, UNPINNED, 2)
    assert "TL204" not in codes(vscode.diagnostics(train))
    vscode.close(data)
    assert "TL204" in codes(vscode.diagnostics(train))


def test_a_change_on_the_disk_shows_in_the_documents(vscode: Editor, folder: Path) -> None:
    train = (folder / "train.py").as_uri()
    vscode.open(train, TRAIN)
    assert "TL204" in codes(vscode.diagnostics(train))
    (folder / "data.py").write_text(UNPINNED)
    event = types.FileEvent((folder / "data.py").as_uri(), types.FileChangeType.Changed)
    parameters = types.DidChangeWatchedFilesParams([event])
    vscode.call(vscode.client.workspace_did_change_watched_files, parameters)
    assert "TL204" not in codes(vscode.diagnostics(train))
