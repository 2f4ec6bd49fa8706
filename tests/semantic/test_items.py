"""The code that loading runs, and the datasets that give whole batches."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.semantic.data.batching import Layout
from torchlint.semantic.script import Script
from torchlint.source import Source

HEAD = """
import functools
import torch
import torch.utils.data as td
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset
from mine import chosen, data, make
x = torch.rand(9, 2)
"""


def _script(text: str) -> Script:
    return Script.parse(Source("example.py", HEAD + textwrap.dedent(text)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class A(Dataset):\n    def __getitem__(self, i): pass", [("A.__getitem__", "ITEM")]),
        ("class A(IterableDataset):\n    def __iter__(self): yield 1", [("A.__iter__", "STREAM")]),
        ("class A:\n    def __getitem__(self, i): pass", []),
        ("class A:\n    def __getitem__(self, i): pass\nDataLoader(A())",
         [("A.__getitem__", "ITEM")]),
        ("class ADataset:\n    def __len__(self): return 1\n    def __getitem__(self, i): pass",
         [("ADataset.__getitem__", "ITEM")]),
        ("class A:\n    def __iter__(self): yield 1", []),
        ("def my_collate(rows): pass", [("my_collate", "BATCH")]),
        ("def pad(rows): pass\nDataLoader(data, collate_fn=pad)", [("pad", "BATCH")]),
        ("def pad(rows, n): pass\nDataLoader(data, collate_fn=functools.partial(pad, n=1))",
         [("pad", "BATCH")]),
        ("class Pad:\n    def __call__(self, rows): pass\nDataLoader(data, collate_fn=Pad())",
         [("Pad.__call__", "BATCH")]),
        ("def make_collate():\n    def inner(rows): pass\n    return inner", []),
        ("DataLoader(data, collate_fn=lambda rows: rows)", [("the collate function", "BATCH")]),
    ],
)  # fmt: skip
def test_items(text: str, found: list[tuple[str, str]]) -> None:
    assert [(code.label, code.per.name) for code in _script(text).loaders.items.all()] == found


def _tensors(text: str) -> list[str] | None:
    """Return the tensors of the dataset that the last loader reads from."""
    script = _script(text)
    site = list(script.calls.of("torch.utils.data.DataLoader"))[-1]
    dataset = site.given("dataset", 0)
    assert dataset is not None
    found = script.loaders.batching.tensors(dataset.value)
    return [script.code(one) for one in found] if found is not None else None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("DataLoader(TensorDataset(x, x))", ["x", "x"]),
        ("DataLoader(Subset(TensorDataset(x), range(3)))", ["x"]),
        ("DataLoader(Subset(TensorDataset(x), [0, 2]))", ["x"]),
        ("DataLoader(Subset(TensorDataset(x), torch.randperm(9).tolist()))", ["x"]),
        ("DataLoader(Subset(TensorDataset(x), torch.randperm(9)))", None),
        ("DataLoader(Subset(TensorDataset(x), chosen))", None),
        ("a, b = td.random_split(TensorDataset(x), [8, 1])\nDataLoader(b)", ["x"]),
        ("DataLoader(td.ConcatDataset([TensorDataset(x), TensorDataset(x)]))", None),
        ("DataLoader(data)", None),
    ],
)
def test_datasets_that_give_whole_batches(text: str, found: list[str] | None) -> None:
    assert _tensors(text) == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return self.x[i], self.x[i].float()", True),
        ('"""An item."""\n        row = self.x[i]\n        return {"x": row}', True),
        ("if torch.is_tensor(i):\n            i = i.tolist()\n        return self.x[i]", True),
        ("return self.x[i], i", False),
        ("return self.x[i + 1]", False),
        ("return self.x[i].unsqueeze(0)", False),
        ("print(i)\n        return self.x[i]", False),
        ("return self.rows[i]", False),
    ],
)
def test_classes_that_only_index_their_tensors(body: str, found: bool) -> None:
    text = (
        "class Rows(Dataset):\n    def __init__(self):\n"
        f"        self.x, self.rows = x, [x]\n    def __getitem__(self, i):\n        {body}\n"
        "DataLoader(Rows())"
    )
    assert (_tensors(text) is not None) is found


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("torch.rand(9, 3)", Layout.ROWS),
        ("torch.rand(9, 3, 4).view(9, -1) / 2", Layout.ROWS),
        ("torch.rand(9, 3, 4).permute(0, 2, 1)", Layout.PERMUTED),
        ("make()", Layout.UNSEEN),
    ],
)
def test_layout(made: str, found: Layout) -> None:
    script = _script(f"y = {made}\nDataLoader(TensorDataset(x, y))")
    (site,) = script.calls.of("torch.utils.data.DataLoader")
    dataset = site.given("dataset", 0)
    assert dataset is not None
    tensors = script.loaders.batching.tensors(dataset.value)
    assert tensors is not None
    assert script.loaders.batching.layout(tensors) is found
