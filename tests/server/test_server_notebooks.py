"""Notebooks in an editor: findings and fixes by cell, as VS Code sends them."""

from __future__ import annotations

from pathlib import Path

import pytest
from editor import Editor
from lsprotocol import types
from server_documents import Pages

FIRST = "import torch\n%matplotlib inline\n"
SLOW = "torch.autograd.set_detect_anomaly(True)"
LOOP = """total = 0.0
for inputs, labels in loader:
    optimizer.zero_grad()
    loss = criterion(model(inputs.to(device)), labels.to(device))
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total)"""
SET_UP = """import torch
device = torch.device("cuda")
model = torch.nn.Linear(8, 2).to(device)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=8)"""
ALL = types.Range(types.Position(0, 0), types.Position(99, 0))


@pytest.fixture
def pages(vscode: Editor, workspace: Path) -> Pages:
    return Pages(vscode, workspace / "train.ipynb")


def test_a_finding_is_in_its_cell_on_its_line(pages: Pages) -> None:
    pages.open(FIRST, f"x = 1\n{SLOW}")
    assert pages.codes(0) == []
    found = pages.editor.diagnostics(pages.cell(1))
    assert [each.code for each in found.diagnostics] == ["TL801"]
    assert found.diagnostics[0].range.start == types.Position(1, 0)
    assert found.version == 1
    shown = pages.editor.hover(pages.cell(1), types.Position(1, 3))
    assert shown is not None
    assert "anomaly" in str(shown.contents)


def test_cells_are_judged_together_and_fixed_each_in_its_document(pages: Pages) -> None:
    pages.open(SET_UP, LOOP)
    assert "TL201" in pages.codes(1)
    (action,) = (
        each
        for each in pages.editor.actions(pages.cell(1), ALL, "quickfix")
        if "(TL201" in each.title
    )
    assert action.edit is not None
    assert action.edit.document_changes is not None
    (change,) = action.edit.document_changes
    assert isinstance(change, types.TextDocumentEdit)
    assert (change.text_document.uri, change.text_document.version) == (pages.cell(1), 1)
    assert all(edit.range.start.line >= 6 for edit in change.edits)


def test_all_safe_fixes_reach_several_cells(pages: Pages) -> None:
    pages.open(SET_UP, SLOW, LOOP)
    pages.codes(1)
    (action,) = pages.editor.actions(pages.cell(1), ALL, "source.fixAll")
    made = pages.editor.wait(pages.editor.client.code_action_resolve_async(action))
    assert made.edit is not None
    assert made.edit.document_changes is not None
    documents = {
        each.text_document.uri
        for each in made.edit.document_changes
        if isinstance(each, types.TextDocumentEdit)
    }
    assert documents == {pages.cell(1), pages.cell(2)}


def test_typing_in_a_cell_is_followed(pages: Pages) -> None:
    pages.open("import torch\f\n", "s = '😀'; x = 1\n")
    assert pages.codes(1) == []
    place = types.Range(types.Position(0, 10), types.Position(0, 15))
    pages.type(1, place, SLOW)
    found = pages.editor.diagnostics(pages.cell(1))
    assert [each.code for each in found.diagnostics] == ["TL801"]
    assert found.diagnostics[0].range.start == types.Position(0, 10)
    assert found.version == 2
    pages.type(1, None, "x = 1", 3)
    assert pages.codes(1) == []


def test_a_cell_that_goes_takes_its_findings_along(pages: Pages) -> None:
    pages.open("import torch", SLOW, "x = 1")
    assert pages.codes(1) == ["TL801"]
    pages.remove(1)
    assert pages.codes(1) == []
    assert pages.editor.actions(pages.cell(1), ALL) == []


def test_cells_of_other_languages_and_empty_ones_have_no_findings(pages: Pages) -> None:
    pages.open(f"-- {SLOW}", "", f"import torch\n{SLOW}", languages=["sql"])
    assert pages.codes(0) == pages.codes(1) == []
    assert pages.codes(2) == ["TL801"]
    assert pages.editor.hover(pages.cell(0), types.Position(0, 4)) is None


def test_a_closed_notebook_has_no_findings(pages: Pages) -> None:
    pages.open(f"import torch\n{SLOW}")
    assert pages.codes(0) == ["TL801"]
    pages.close(1)
    assert pages.codes(0) == []
