"""What is known of datasets, transforms and collate functions, and of who draws from a loader."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from torchlint.semantic.data.datasets import Trait
from torchlint.semantic.data.loaders import Loader
from torchlint.semantic.script import Script
from torchlint.source import Source

HEAD = """
import random
import numpy as np
import torch
import torchvision.transforms as T
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset
from torch.utils.data import TensorDataset, get_worker_info, random_split
from torchvision import datasets
"""


def _script(text: str) -> Script:
    return Script.parse(Source("example.py", HEAD + textwrap.dedent(text)))


def _loader(script: Script) -> Loader:
    return next(iter(script.loaders))


def _traits(text: str) -> dict[str, str]:
    script = _script(text)
    dataset = _loader(script).given("dataset", 0)
    assert dataset is not None
    return {
        trait.name: word for trait, word in script.loaders.datasets.traits(dataset.value).items()
    }


def _reads(body: str, init: str = "self.paths = paths", base: str = "Dataset") -> str:
    """Return a script with one dataset class whose `__getitem__` has this body."""
    lines = ["class Images(" + base + "):", "    def __init__(self, paths, transform=None):"]
    lines += ["        " + init, "    def __len__(self):", "        return len(self.paths)"]
    lines += ["    def __getitem__(self, index):"]
    lines += ["        " + line for line in textwrap.dedent(body).strip().split("\n")]
    return "\n".join([*lines, "DataLoader(Images(['a.png'], SHAPE))"])


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("TensorDataset(torch.zeros(3))", {"IN_MEMORY"}),
        ("TensorDataset(torch.zeros(3).cuda())", {"IN_MEMORY", "ON_DEVICE"}),
        ("Subset(TensorDataset(torch.zeros(3)), which)", {"IN_MEMORY"}),
        ("random_split(TensorDataset(torch.zeros(3)), [2, 1])[0]", {"IN_MEMORY"}),
        ("datasets.MNIST('.', transform=T.ToTensor())", set()),
        ("datasets.MNIST('.', True, T.RandomCrop(3))", {"RANDOM"}),
        ("datasets.LSUN('.', transform=T.ToTensor())", {"HANDLE"}),
        ("Subset(datasets.MNIST('.', transform=T.ToTensor()), range(64))", {"FEW"}),
        ("ConcatDataset([TensorDataset(a), datasets.MNIST('.')])", set()),
        ("TensorDataset(a) + TensorDataset(b)", {"IN_MEMORY"}),
        ("datasets.MNIST('.') + datasets.MNIST('.', transform=T.ColorJitter())", {"RANDOM"}),
        ("[(1, 2), (3, 4)]", {"IN_MEMORY"}),
        ("somewhere.Images()", {"UNSEEN"}),
        ("datasets.MNIST('.', transform=somewhere.augment)", {"UNSEEN"}),
        ("datasets.MNIST('.', transform=T.Compose([T.Lambda(lambda x: x)]))", {"LOCAL"}),
        ("datasets.MNIST('.', transform=T.Compose([T.Resize(8), T.ToTensor()]))", set()),
    ],
)
def test_datasets_in_one_expression(dataset: str, expected: set[str]) -> None:
    assert set(_traits(f"import somewhere\nDataLoader({dataset})")) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return Image.open(self.paths[index])", {"DECODES"}),
        ("return self.paths[index]", {"IN_MEMORY"}),
        ("return torch.tensor(self.paths[index]).float()", {"IN_MEMORY"}),
        ("if random.random() < 0.5:\n    index = 0\nreturn np.load(self.paths[index])", {"RANDOM"}),
        ("return np.load(self.paths[index]) + np.random.randn(3)", {"RANDOM"}),
        ("return torch.empty(3).uniform_()", {"RANDOM"}),
        ("self.last = index\nreturn np.load(self.paths[index])", {"MUTATES"}),
        ("self.seen.append(index)\nreturn np.load(self.paths[index])", {"MUTATES"}),
        ("global count\ncount = index\nreturn np.load(self.paths[index])", {"MUTATES"}),
        ("return torch.zeros(3, device='cuda')", {"ON_DEVICE"}),
        ("return torch.zeros(3, device='cpu') + np.load(self.paths[index])", set()),
        ("return elsewhere(self.paths[index])", {"UNSEEN"}),
    ],
)
def test_datasets_by_what_reading_an_item_does(body: str, expected: set[str]) -> None:
    assert set(_traits(_reads(body))) == expected


def test_a_helper_is_looked_into() -> None:
    helper = "def flip(x):\n    return x if random.random() < 0.5 else -x\n"
    assert _traits(helper + _reads("return flip(np.load(self.paths[index]))")) == {
        "RANDOM": "random.random"
    }


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ("T.Compose([T.RandomHorizontalFlip(), T.ToTensor()])", {"RANDOM"}),
        ("T.ToTensor()", set()),
        ("None", set()),
        ("lambda x: x", {"LOCAL"}),
    ],
)
def test_the_transform_of_a_class_is_what_it_was_given(transform: str, expected: set[str]) -> None:
    text = _reads(
        "return self.transform(np.load(self.paths[index]))",
        init="self.paths, self.transform = paths, transform",
    )
    assert set(_traits(text.replace("SHAPE", transform))) == expected


def test_an_open_file_is_a_handle_unless_each_worker_opens_its_own() -> None:
    held = _reads("return self.file.read(index)", init="self.file = open(paths[0])")
    lazy = _reads(
        "if self.file is None:\n    self.file = open(self.paths[0])\nreturn self.file.read(index)"
    )
    assert _traits(held)["HANDLE"] == "self.file"
    assert "HANDLE" not in _traits(lazy)
    assert "MUTATES" not in _traits(lazy)


def test_streams_are_sharded_where_they_ask_for_their_worker() -> None:
    stream = "class Lines(IterableDataset):\n    def __iter__(self):\n        {}yield 1\n"
    plain = stream.format("") + "DataLoader(Lines())"
    asking = stream.format("info = get_worker_info()\n        ") + "DataLoader(Lines())"
    assert set(_traits(plain)) == {"ITERABLE", "UNSHARDED"}
    assert set(_traits(asking)) == {"ITERABLE"}


def test_a_collate_function_is_read_like_a_transform() -> None:
    script = _script(
        """
        def collate(items):
            return torch.stack(items).cuda()
        DataLoader(x, collate_fn=collate)
        """
    )
    given = _loader(script).given("collate_fn", 6)
    assert given is not None
    assert Trait.ON_DEVICE in script.loaders.datasets.callable_traits(given.value)


LOADER = "loader = DataLoader(somewhere, batch_size=2)\n"


@pytest.mark.parametrize(
    ("text", "passes", "repeated"),
    [
        (LOADER + "for x in loader:\n    print(x)", 1, 0),
        (LOADER + "for epoch in range(2):\n    for x in loader:\n        f(x)", 1, 1),
        (LOADER + "for epoch in range(2):\n    for i, x in enumerate(loader):\n        f(x)", 1, 1),
        (LOADER + "it = iter(loader)\nx = next(it)", 1, 0),
        (LOADER + "total = sum(f(x) for x in loader)", 1, 0),
        (
            "for epoch in range(2):\n    a = DataLoader(x)\n    for y in a:\n        f(y)",
            1,
            0,
        ),
        (
            "def get():\n    return DataLoader(x), DataLoader(y)\n"
            "def train(l):\n    for x in l:\n        f(x)\n"
            "a, b = get()\nfor epoch in range(3):\n    train(a)",
            1,
            1,
        ),
        (
            "loaders = {'train': DataLoader(x)}\nfor epoch in range(3):\n"
            "    for x in loaders['train']:\n        f(x)",
            1,
            1,
        ),
    ],
)
def test_passes_over_a_loader(text: str, passes: int, repeated: int) -> None:
    script = _script(text)
    call = _loader(script).node
    assert len(script.loaders.at(call).passes) == passes
    assert len(script.loaders.at(call).repeated) == repeated


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("train_loader = DataLoader(x)", "`train_loader`"),
        ("a, b = DataLoader(x), DataLoader(y)", "`a`"),
        ("self.loader = DataLoader(x)", "`self.loader`"),
        ("train(loader=DataLoader(x))", "`loader`"),
        ("d = dict()\nd.update({'val': DataLoader(x)})", "the loader 'val'"),
        ("def get():\n    return DataLoader(x)", "the loader of `get()`"),
        ("for x in DataLoader(y):\n    pass", "this loader"),
    ],
)
def test_a_loader_is_called_what_the_user_calls_it(text: str, label: str) -> None:
    script = _script(text)
    assert _loader(script).label == label


@pytest.mark.parametrize(
    ("text", "at_import"),
    [
        ("f()", True),
        ("if __name__ == '__main__':\n    f()", False),
        ("def main():\n    f()", False),
        ("def main():\n    f()\nmain()", True),
        ("def main():\n    f()\nif __name__ == '__main__':\n    main()", False),
        ("class A:\n    def run(self):\n        f()\nA().run()", True),
    ],
)
def test_what_importing_a_file_runs(text: str, at_import: bool) -> None:
    script = _script(text)
    call = next(
        call
        for call in script.tree.all(cst.Call)
        if isinstance(call.func, cst.Name) and call.func.value == "f"
    )
    assert script.loops.guard.at_import(call) is at_import
