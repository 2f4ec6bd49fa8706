"""What an editor is told of its documents, and when."""

from __future__ import annotations

from pathlib import Path

import pytest
from editor import Editor, editor
from lsprotocol import types
from server_documents import QUIET, TRAIN, codes, find, offset

FOUND = ["TL101", "TL102", "TL204", "TL207"]


def test_findings_come_on_open_on_change_and_on_save(vscode: Editor, workspace: Path) -> None:
    uri = (workspace / "life.py").as_uri()
    vscode.open(uri, TRAIN)
    opened = vscode.diagnostics(uri)
    assert (codes(opened), opened.version) == (FOUND, 1)
    vscode.change(uri, QUIET, 2)
    changed = vscode.diagnostics(uri)
    assert (codes(changed), changed.version) == ([], 2)
    vscode.save(uri)
    assert vscode.diagnostics(uri).version == 2
    vscode.close(uri)
    closed = vscode.diagnostics(uri)
    assert (codes(closed), closed.version) == ([], None)


def test_a_diagnostic_has_what_an_editor_shows(vscode: Editor, workspace: Path) -> None:
    uri = (workspace / "shown.py").as_uri()
    vscode.open(uri, TRAIN)
    published = vscode.diagnostics(uri)
    found = find(published, "TL102")
    assert found.source == "torchlint"
    assert found.message.startswith("`loader` does not pin memory")
    assert found.severity is types.DiagnosticSeverity.Warning
    assert found.code_description is not None
    assert found.code_description.href.endswith("/rules/TL102/")
    assert found.range.start == types.Position(6, 9)
    vscode.change(uri, "import torch\ntorch.zeros((\n", 2)
    (broken,) = vscode.diagnostics(uri).diagnostics
    assert (broken.code, broken.severity) == ("TL001", types.DiagnosticSeverity.Error)


def test_the_text_in_the_editor_counts_not_the_file(vscode: Editor, workspace: Path) -> None:
    file = workspace / "unsaved.py"
    file.write_text(TRAIN, encoding="utf-8")
    vscode.open(file.as_uri(), QUIET)
    assert codes(vscode.diagnostics(file.as_uri())) == []


def test_of_many_changes_the_last_is_published(vscode: Editor, workspace: Path) -> None:
    uri = (workspace / "typing.py").as_uri()
    vscode.open(uri, QUIET)
    assert vscode.diagnostics(uri).version == 1
    vscode.type(uri, {version: f"{TRAIN}typed = {version}\n" for version in range(2, 40)})
    versions = [vscode.diagnostics(uri).version]
    while versions[-1] != 39:
        versions.append(vscode.diagnostics(uri).version)
    assert len(versions) < 30
    assert versions == sorted(versions, key=int)  # type: ignore[arg-type]
    assert vscode.is_quiet(uri)


def test_what_was_found_for_a_closed_document_is_dropped(vscode: Editor, workspace: Path) -> None:
    uri = (workspace / "gone.py").as_uri()
    vscode.open(uri, TRAIN)
    vscode.close(uri)
    published = vscode.diagnostics(uri)
    while published.version is not None:  # the check may end before the document is closed
        published = vscode.diagnostics(uri)
    assert codes(published) == []
    assert vscode.is_quiet(uri)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-32-le"])
def test_columns_are_those_of_the_encoding(
    workspace: Path, environment: dict[str, str], encoding: str
) -> None:
    name = encoding.removesuffix("-le")
    with editor(environment=environment) as opened:
        done = opened.initialize(workspace, encodings=(name,))
        assert done.capabilities.position_encoding == types.PositionEncodingKind(name)
        for number, end in enumerate(("\n", "\r\n", "\r")):
            text = TRAIN.replace("\n", end)
            opened.open(f"untitled:{number}", text)
            place = find(opened.diagnostics(f"untitled:{number}"), "TL207").range
            start, last = (offset(text, at, encoding) for at in (place.start, place.end))
            assert text[start:last] == 'print("😀", loss.item())'


def test_columns_are_those_of_utf_16_where_the_editor_names_none(
    vscode: Editor, workspace: Path
) -> None:
    uri = (workspace / "columns.py").as_uri()
    vscode.open(uri, 'import torch\n"😀"; torch.autograd.set_detect_anomaly(True)\n')
    found = find(vscode.diagnostics(uri), "TL801")
    assert found.range.start == types.Position(1, 6)


@pytest.mark.parametrize(
    ("uri", "language"),
    [
        ("vscode-notebook-cell:/a.ipynb#1", "python"),
        ("git:/a.py", "python"),
        ("file:///notes.md", "markdown"),
        ("file:///stubs.pyi", "python"),
    ],
)
def test_what_is_no_script_is_left_alone(vscode: Editor, uri: str, language: str) -> None:
    vscode.open(uri, TRAIN, language)
    if uri.endswith(".pyi"):
        assert codes(vscode.diagnostics(uri)) == []
    else:
        assert vscode.is_quiet(uri, 0.5)
    assert vscode.actions(uri, types.Range(types.Position(6, 9), types.Position(6, 9))) == []


def test_a_text_with_half_a_character_is_reported_and_no_more(
    vscode: Editor, workspace: Path
) -> None:
    uri = (workspace / "half.py").as_uri()
    vscode.open(uri, 'import torch\nx = "\ud83d"\n')
    assert codes(vscode.diagnostics(uri)) == ["TL001"]
    vscode.change(uri, QUIET, 2)
    assert codes(vscode.diagnostics(uri)) == []
