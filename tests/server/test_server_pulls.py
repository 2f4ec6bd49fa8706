"""An editor that asks for diagnostics: it gets them once, and is told when to ask again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from editor import PATIENCE, Editor, editor
from lsprotocol import types

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


def test_what_is_not_open_has_no_findings(asking: Editor, tmp_path: Path) -> None:
    report = ask(asking, (tmp_path / "gone.py").as_uri())
    assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
    assert list(report.items) == []
