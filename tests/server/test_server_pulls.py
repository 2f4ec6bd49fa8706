"""An editor that asks for diagnostics: it gets them once, and is told when to ask again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from editor import PATIENCE, Editor, editor
from lsprotocol import types
from server_documents import Pages

SLOW = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n"
FAST = "import torch\n"
CAPABILITIES = types.WorkspaceClientCapabilities(
    diagnostics=types.DiagnosticWorkspaceClientCapabilities(refresh_support=True)
)


@pytest.fixture
def asking(environment: dict[str, str], tmp_path: Path) -> Iterator[Editor]:
    """Return an editor that asks for diagnostics instead of waiting for them."""
    with editor(environment=environment) as opened:
        opened.initialize(
            tmp_path, workspace=CAPABILITIES, diagnostic=types.DiagnosticClientCapabilities()
        )
        yield opened


def ask(asking: Editor, uri: str, before: str | None = None) -> types.DocumentDiagnosticReport:
    params = types.DocumentDiagnosticParams(
        types.TextDocumentIdentifier(uri), previous_result_id=before
    )
    return asking.wait(asking.client.text_document_diagnostic_async(params))


def test_findings_are_handed_out_when_asked_for_and_never_published(
    asking: Editor, tmp_path: Path
) -> None:
    uri = (tmp_path / "train.py").as_uri()
    asking.open(uri, SLOW)
    first = ask(asking, uri)
    assert isinstance(first, types.RelatedFullDocumentDiagnosticReport)
    assert [each.code for each in first.items] == ["TL801"]
    again = ask(asking, uri, first.result_id)
    assert isinstance(again, types.RelatedUnchangedDocumentDiagnosticReport)
    assert again.result_id == first.result_id
    asking.change(uri, FAST, 2)
    after = ask(asking, uri, first.result_id)
    assert isinstance(after, types.RelatedFullDocumentDiagnosticReport)
    assert list(after.items) == []
    assert asking.is_quiet(uri, 0.5)


def test_changed_settings_make_the_editor_ask_again(asking: Editor, tmp_path: Path) -> None:
    uri = (tmp_path / "train.py").as_uri()
    asking.open(uri, SLOW)
    first = ask(asking, uri)
    assert isinstance(first, types.RelatedFullDocumentDiagnosticReport)
    (tmp_path / "torchlint.toml").write_text('ignore = ["TL801"]\n')
    while not asking.refreshes.empty():
        asking.refreshes.get(timeout=PATIENCE)
    asking.save(uri)
    asking.refreshes.get(timeout=PATIENCE)
    after = ask(asking, uri, first.result_id)
    assert isinstance(after, types.RelatedFullDocumentDiagnosticReport)
    assert list(after.items) == []


def ask_for_all(
    asking: Editor, before: Mapping[str, str] | None = None
) -> dict[str, types.WorkspaceDocumentDiagnosticReport]:
    known = [types.PreviousResultId(uri, value) for uri, value in (before or {}).items()]
    params = types.WorkspaceDiagnosticParams(known)
    report = asking.wait(asking.client.workspace_diagnostic_async(params))
    return {each.uri.rpartition("/")[2]: each for each in report.items}


def codes(report: types.WorkspaceDocumentDiagnosticReport) -> list[object]:
    assert isinstance(report, types.WorkspaceFullDocumentDiagnosticReport)
    return [each.code for each in report.items]


def test_the_files_of_the_workspace_are_checked_open_or_not(asking: Editor, tmp_path: Path) -> None:
    for name, text in {"open.py": FAST, "train.py": SLOW, "other.py": SLOW}.items():
        (tmp_path / name).write_text(text)
    uri = (tmp_path / "open.py").as_uri()
    asking.open(uri, SLOW)
    first = ask_for_all(asking)
    assert {name: codes(each) for name, each in first.items()} == {
        "open.py": ["TL801"],
        "other.py": ["TL801"],
        "train.py": ["TL801"],
    }
    before = {each.uri: str(each.result_id) for each in first.values()}
    (tmp_path / "train.py").write_text(FAST)
    (tmp_path / "other.py").unlink()
    asking.change(uri, SLOW, 2)
    after = ask_for_all(asking, before)
    assert isinstance(after["open.py"], types.WorkspaceUnchangedDocumentDiagnosticReport)
    assert codes(after["train.py"]) == codes(after["other.py"]) == []


def test_an_editor_that_asks_for_cells_gets_them_by_cell(asking: Editor, tmp_path: Path) -> None:
    pages = Pages(asking, tmp_path / "train.ipynb")
    pages.open("import torch\n", SLOW)
    found = [ask(asking, pages.cell(number)) for number in (0, 1)]
    assert all(isinstance(each, types.RelatedFullDocumentDiagnosticReport) for each in found)
    assert [[one.code for one in getattr(each, "items", ())] for each in found] == [[], ["TL801"]]


def test_what_is_not_open_has_no_findings(asking: Editor, tmp_path: Path) -> None:
    report = ask(asking, (tmp_path / "gone.py").as_uri())
    assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
    assert list(report.items) == []
