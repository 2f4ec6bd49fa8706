"""Whose settings hold for a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from editor import Editor, editor
from lsprotocol import types
from server_documents import TRAIN, codes

FOUND = ["TL101", "TL102", "TL204", "TL207"]


def _write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def _found(opened: Editor, file: Path) -> list[str]:
    opened.open(file.as_uri(), TRAIN)
    return codes(opened.diagnostics(file.as_uri()))


def test_the_nearest_configuration_counts(vscode: Editor, workspace: Path) -> None:
    _write(workspace, "near/torchlint.toml", 'ignore = ["TL1"]\n')
    _write(workspace, "near/deep/pyproject.toml", '[tool.torchlint]\nselect = ["TL102"]\n')
    assert _found(vscode, workspace / "near" / "a.py") == ["TL204", "TL207"]
    assert _found(vscode, workspace / "near" / "deep" / "a.py") == ["TL102"]


def test_a_file_outside_of_every_folder(vscode: Editor, tmp_path: Path) -> None:
    assert _found(vscode, tmp_path / "a.py") == FOUND
    _write(tmp_path, "own/torchlint.toml", 'select = ["TL204"]\n')
    assert _found(vscode, tmp_path / "own" / "a.py") == ["TL204"]


def test_a_document_without_a_file_stands_in_the_first_folder(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    _write(tmp_path, "torchlint.toml", 'select = ["TL204"]\n')
    with editor(environment=environment) as opened:
        opened.initialize(tmp_path)
        opened.open("untitled:Untitled-1", TRAIN)
        assert codes(opened.diagnostics("untitled:Untitled-1")) == ["TL204"]


@pytest.mark.parametrize("name", ["legacy/a.py", "legacy/deep/a.py", "mine/legacy.py"])
def test_what_is_excluded_is_left_out(vscode: Editor, workspace: Path, name: str) -> None:
    text = 'exclude = ["legacy", "mine/*.py"]\n'
    _write(workspace, "excluding/torchlint.toml", text)
    assert _found(vscode, workspace / "excluding" / name) == []


def test_a_configuration_that_changes(vscode: Editor, workspace: Path) -> None:
    file = workspace / "changing" / "a.py"
    config = _write(workspace, "changing/torchlint.toml", 'select = ["TL102"]\n')
    assert _found(vscode, file) == ["TL102"]
    config.write_text('select = ["TL204"]\n')
    vscode.save(file.as_uri())
    assert codes(vscode.diagnostics(file.as_uri())) == ["TL204"]
    assert vscode.registered.get(timeout=60) == types.WORKSPACE_DID_CHANGE_WATCHED_FILES
    config.write_text('select = ["TL207"]\n')
    _changed(vscode, config)
    assert codes(vscode.diagnostics(file.as_uri())) == ["TL207"]


def test_a_wrong_configuration_is_shown_once(vscode: Editor, workspace: Path) -> None:
    file = workspace / "wrong" / "a.py"
    config = _write(workspace, "wrong/torchlint.toml", 'selct = ["TL102"]\n')
    assert _found(vscode, file) == []
    shown = vscode.messages.get(timeout=60)
    assert shown == f"torchlint: {config}:1: unknown key `selct`, did you mean `select`?"
    vscode.save(file.as_uri())
    assert codes(vscode.diagnostics(file.as_uri())) == []
    assert vscode.messages.empty()
    config.write_text('select = ["TL102"]\n')
    _changed(vscode, config)
    assert codes(vscode.diagnostics(file.as_uri())) == ["TL102"]


def test_what_the_editor_sets_goes_over_the_files(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    _write(tmp_path, "torchlint.toml", 'ignore = ["TL2"]\n')
    with editor(environment=environment) as opened:
        opened.initialize(tmp_path, options={"settings": {"ignore": ["TL102"]}})
        assert _found(opened, tmp_path / "a.py") == ["TL101", "TL204", "TL207"]


def test_the_editor_sets_options_by_folder(tmp_path: Path, environment: dict[str, str]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    settings: Mapping[str | None, Any] = {
        None: {"ignore": ["TL1"]},
        two.as_uri(): {"ignore": ["TL2"]},
    }
    with editor(settings, environment) as opened:
        opened.initialize(one, two)
        assert _settled(opened, one / "a.py", ["TL204", "TL207"])
        assert _settled(opened, two / "a.py", ["TL101", "TL102"])
        opened.settings[None] = {"select": ["TL102"]}
        _configured(opened, None)
        assert _settled(opened, one / "b.py", ["TL102"])


@pytest.fixture(scope="module")
def vim(workspace: Path, environment: dict[str, str]) -> Iterator[Editor]:
    """Return an editor that sends its settings unasked."""
    with editor(environment=environment) as opened:
        opened.initialize(workspace)
        yield opened


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"select": ["TL102", "TL2"], "ignore": ["TL207"]}, ["TL102", "TL204"]),
        ({"per-file-ignores": {"*.py": ["TL1"]}}, ["TL204", "TL207"]),
        ({}, FOUND),
        ([], FOUND),
        (None, FOUND),
    ],
)
def test_an_editor_that_sends_its_settings(
    vim: Editor, tmp_path: Path, settings: Any, found: list[str]
) -> None:
    _configured(vim, {"torchlint": settings})
    assert _found(vim, tmp_path / "a.py") == found


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"selct": []}, "unknown key `selct`, did you mean `select`?"),
        ({"select": ["TL1O2"]}, "select: unknown code or name `TL1O2`, did you mean `TL"),
        ({"target-torch": 2.4}, '`target-torch`: must be a version in quotes such as "2.4"'),
        ("TL1", 'must be a table such as {"select": ["TL2"]}'),
    ],
)
def test_options_that_cannot_be_followed_are_shown_and_left_out(
    vim: Editor, tmp_path: Path, settings: Any, said: str
) -> None:
    _configured(vim, {"torchlint": {}})
    _configured(vim, {"torchlint": settings})
    assert vim.messages.get(timeout=60).startswith(f"torchlint: the editor's settings: {said}")
    assert _found(vim, tmp_path / "a.py") == FOUND


def _settled(opened: Editor, file: Path, expected: list[str]) -> bool:
    """Return whether a document has these findings once the settings are there."""
    found = _found(opened, file)
    while found != expected:
        found = codes(opened.diagnostics(file.as_uri()))
    return True


def _changed(opened: Editor, file: Path) -> None:
    event = types.FileEvent(file.as_uri(), types.FileChangeType.Changed)
    parameters = types.DidChangeWatchedFilesParams([event])
    opened.call(opened.client.workspace_did_change_watched_files, parameters)


def _configured(opened: Editor, settings: Any) -> None:
    parameters = types.DidChangeConfigurationParams(settings)
    opened.call(opened.client.workspace_did_change_configuration, parameters)
