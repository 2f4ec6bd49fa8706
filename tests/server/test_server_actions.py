"""Quick fixes, comments that silence, all safe fixes, and pages of rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from editor import Editor, editor
from lsprotocol import types
from server_documents import EVERYTHING, PINNED, TRAIN, applied, edits_of, find

FIX_ALL = "source.fixAll.torchlint"
PIN = "Pass pin_memory=torch.cuda.is_available() (TL102, exact)"


@pytest.fixture(scope="module")
def uri(vscode: Editor, workspace: Path) -> str:
    """Return a document that is open."""
    uri = (workspace / "train.py").as_uri()
    vscode.open(uri, TRAIN, version=7)
    return uri


@pytest.fixture(scope="module")
def published(vscode: Editor, uri: str) -> types.PublishDiagnosticsParams:
    """Return what was found in the document."""
    return vscode.diagnostics(uri)


def test_a_quick_fix_names_its_safety(
    vscode: Editor, uri: str, published: types.PublishDiagnosticsParams
) -> None:
    found = find(published, "TL102")
    actions = {each.title: each for each in vscode.actions(uri, found.range, "quickfix")}
    assert list(actions) == [PIN, "Ignore TL101 here", "Ignore TL102 here"]
    pin = actions[PIN]
    assert (pin.kind, pin.is_preferred) == (types.CodeActionKind.QuickFix, True)
    assert list(pin.diagnostics or ()) == [found]
    after = applied(TRAIN, edits_of(pin, uri, 7))
    assert after == TRAIN.replace('data["😀"], batch_size=4)', PINNED)


def test_an_unsafe_fix_says_why(vscode: Editor, workspace: Path) -> None:
    uri = (workspace / "unsafe.py").as_uri()
    text = (
        "from torch import nn\n"
        "net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())\n"
    )
    vscode.open(uri, text)
    found = find(vscode.diagnostics(uri), "TL401")
    (note,) = found.related_information or ()
    assert note.location.uri == uri
    assert note.location.range.start.line == 1
    fix, *_ = vscode.actions(uri, found.range, "quickfix")
    assert fix.title.startswith("Pass `bias=False` (TL401, unsafe: ")
    assert fix.is_preferred is None
    assert "nn.Conv2d(3, 8, 3, bias=False)" in applied(text, edits_of(fix, uri, 1))
    assert vscode.actions(uri, EVERYTHING, FIX_ALL) == []


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_finding_is_silenced_here(vscode: Editor, workspace: Path, end: str) -> None:
    uri = (workspace / f"silenced{len(end)}.py").as_uri()
    text = TRAIN.replace("\n", end)
    vscode.open(uri, text)
    found = find(vscode.diagnostics(uri), "TL207")
    (ignore,) = (each for each in vscode.actions(uri, found.range) if "Ignore" in each.title)
    after = applied(text, edits_of(ignore, uri, 1))
    comment = f"loss.item())  # torchlint: ignore[TL207]{end}"
    assert after == text.replace(f"loss.item()){end}", comment)
    vscode.change(uri, after, 2)
    assert [each.code for each in vscode.diagnostics(uri).diagnostics] == [
        "TL101",
        "TL102",
        "TL204",
    ]


def test_all_safe_fixes_come_when_they_are_chosen(
    vscode: Editor, uri: str, published: types.PublishDiagnosticsParams
) -> None:
    assert published.diagnostics
    (action,) = vscode.actions(uri, EVERYTHING, FIX_ALL)
    assert (action.kind, action.edit) == (FIX_ALL, None)
    resolved = vscode.wait(vscode.client.code_action_resolve_async(action))
    after = applied(TRAIN, edits_of(resolved, uri, 7))
    assert after == TRAIN.replace('data["😀"], batch_size=4)', PINNED).replace(
        "batch.to(device)", "batch.to(device, non_blocking=True)"
    )


def test_fixes_for_another_version_are_not_made(
    vscode: Editor, uri: str, published: types.PublishDiagnosticsParams
) -> None:
    assert published.diagnostics
    (action,) = vscode.actions(uri, EVERYTHING, "source.fixAll")
    action.data = {"uri": uri, "version": 6}
    assert vscode.wait(vscode.client.code_action_resolve_async(action)).edit is None
    action.data = "nonsense"
    assert vscode.wait(vscode.client.code_action_resolve_async(action)).edit is None


def test_only_the_kinds_that_were_asked_for(
    vscode: Editor, uri: str, published: types.PublishDiagnosticsParams
) -> None:
    place = find(published, "TL102").range
    assert len(vscode.actions(uri, place)) == 4
    assert [each.kind for each in vscode.actions(uri, place, "source")] == [FIX_ALL]
    assert vscode.actions(uri, place, "refactor", "source.organizeImports") == []


def test_an_editor_of_few_words(workspace: Path, environment: dict[str, str]) -> None:
    with editor(environment=environment) as plain:
        plain.initialize(workspace, workspace=None, code_action=None)
        plain.open("untitled:plain", TRAIN)
        assert len(plain.diagnostics("untitled:plain").diagnostics) == 4
        (action,) = plain.actions("untitled:plain", EVERYTHING, FIX_ALL)
        assert action.edit is not None
        assert action.edit.document_changes is None
        (edits,) = (action.edit.changes or {}).values()
        assert PINNED in applied(TRAIN, edits)


def test_the_page_of_a_rule_is_shown_at_its_finding(
    vscode: Editor, uri: str, published: types.PublishDiagnosticsParams
) -> None:
    found = find(published, "TL207")
    shown = vscode.hover(uri, found.range.start)
    assert shown is not None
    assert isinstance(shown.contents, types.MarkupContent)
    assert shown.contents.kind is types.MarkupKind.Markdown
    assert shown.contents.value.startswith("**TL207 logging-every-step**: ")
    assert "/rules/TL207/)" in shown.contents.value
    assert shown.range == found.range
    assert vscode.hover(uri, types.Position(0, 0)) is None
    assert vscode.hover(uri, types.Position(5000, 1)) is None


def test_the_page_of_a_rule_is_shown_at_its_code_in_a_comment(
    vscode: Editor, workspace: Path
) -> None:
    uri = (workspace / "comment.py").as_uri()
    vscode.open(uri, "import torch\nx = 1  # noqa: E501, TL801\n")
    at_ours = vscode.hover(uri, types.Position(1, 22))
    assert at_ours is not None
    assert isinstance(at_ours.contents, types.MarkupContent)
    assert "**TL801 anomaly-detection**" in at_ours.contents.value
    assert vscode.hover(uri, types.Position(1, 15)) is None
