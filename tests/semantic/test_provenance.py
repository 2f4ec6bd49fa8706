"""What of a dataset was looked at: what its items are made of, and what it reads from."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.semantic.script import Script
from torchlint.source import Source

HEADER = """\
import glob
import h5py
import numpy as np
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, random_split
from torchvision import datasets, transforms
from data import Base, Cached, augment, decorated, load, rows
"""


def _script(text: str) -> Script:
    return Script.parse(Source("train.py", HEADER + textwrap.dedent(text)))


def _unseen(text: str) -> tuple[str, str]:
    """Return what may be on a device, and what may be an open file, in the loader's dataset."""
    script = _script(text)
    (site,) = script.calls.of("torch.utils.data.DataLoader")
    dataset = site.given("dataset", 0)
    assert dataset is not None
    return script.loaders.provenance.unseen_tensors(
        dataset.value
    ), script.loaders.provenance.unseen_source(dataset.value)


CLASS = """\
class Rows(Dataset):
    def __init__(self, source, transform=None):
        self.source, self.transform = source, transform
        {init}
    def __len__(self):
        return 9
    {decorator}
    def __getitem__(self, i):
        {body}
loader = DataLoader(Rows({given}), batch_size=4)
"""


def _class(body: str, given: str = "None", init: str = "pass", decorator: str = "") -> str:
    return CLASS.format(body=body, given=given, init=init, decorator=decorator)


SEEN = {
    "files that NumPy reads": _class("return np.load(self.source[i])", "glob.glob('*.npy')"),
    "paths from a caller out of sight, which libraries open": """
        def main(paths):
            class Rows(Dataset):
                def __init__(self, paths):
                    self.paths = paths
                def __getitem__(self, i):
                    image = Image.open(self.paths[i])
                    return transforms.functional.to_tensor(image)
            loader = DataLoader(Rows(paths))
        """,
    "tensors of this file": _class("return self.source[i]", "torch.randn(9, 2)"),
    "tensors of this file, handed on by a function": """
        def make(n):
            x = torch.linspace(0, 1, n)
            return x, torch.sin(x)
        x, y = make(9)
        loader = DataLoader(TensorDataset(x, y))
        """,
    "a part of them": """
        whole = TensorDataset(torch.randn(9, 2), torch.randn(9))
        a, b = random_split(whole, [4, 5])
        loader = DataLoader(ConcatDataset([Subset(a, [1]), b]))
        """,
    "a dataset of torchvision": """
        how = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.5,))])
        loader = DataLoader(datasets.MNIST("data", transform=how))
        """,
    "a transform that a caller gives": _class(
        "return self.transform(Image.open(self.source[i]))", "['a'], transforms.ToTensor()"
    ),
    "a list that grows": _class("return self.kept[i]", "None", "self.kept = [torch.ones(2)] * 9"),
    "a class that inherits one of this file": """
        class Whole(Dataset):
            def __init__(self, n):
                self.x = torch.arange(n)
            def __getitem__(self, i):
                return self.row(i)
            def row(self, i):
                return self.x[i].float()
        class Half(Whole):
            pass
        loader = DataLoader(Half(9))
        """,
}
UNSEEN = {
    "a class of another module": ("loader = DataLoader(Cached(9))", "`Cached` of module `data`"),
    "values of another module": (
        "loader = DataLoader(TensorDataset(rows, torch.ones(9)))",
        "`rows` of module `data`",
    ),
    "what a function of another module gives": (
        "x, y = load()\nloader = DataLoader(TensorDataset(x, y))",
        "`load` of module `data`",
    ),
    "a parameter that nothing in this file gives": (
        "def main(images):\n    return DataLoader(images)",
        "`images`, which callers give,",
    ),
    "tensors that a caller gives": (
        "def main(x, y):\n    return DataLoader(TensorDataset(x, y))",
        "`x`, which callers give,",
    ),
    "what the class keeps comes from elsewhere": (
        _class("return torch.stack([self.source[i]])", "load()"),
        "`load` of module `data`",
    ),
    "what the class puts into its list comes from elsewhere": (
        _class(
            "return self.kept[i]",
            init="self.kept = []\n        for each in range(9):\n"
            "            self.kept.append(load(each))",
        ),
        "`load` of module `data`",
    ),
    "an item is made elsewhere": (_class("return load(i), 1"), "`load` of module `data`"),
    "the transform is made elsewhere": (
        _class("return self.transform(torch.ones(2))", "None, augment"),
        "`augment` of module `data`",
    ),
    "a base class of another module": (
        "class Rows(Base):\n    def __getitem__(self, i):\n        return torch.ones(2)\n"
        "loader = DataLoader(Rows())",
        "`Base` of module `data`",
    ),
    "a decorator of another module": (
        _class("return torch.ones(2)", decorator="@decorated"),
        "`decorated` of module `data`",
    ),
    "a method that is put into the class later": (
        _class("return torch.ones(2)") + "Rows.__getitem__ = load\n",
        "`load` of module `data`",
    ),
    "an attribute that nothing in sight gives": (
        _class("return self.table[i]"),
        "`self.table`",
    ),
    "a part of what comes from elsewhere": (
        "loader = DataLoader(Subset(Cached(9), [1, 2]))",
        "`Cached` of module `data`",
    ),
    "one of two paths": (
        "import sys\nif sys.argv:\n    found = Cached(9)\nelse:\n    found = [torch.ones(2)]\n"
        "loader = DataLoader(found)",
        "`Cached` of module `data`",
    ),
    "a torchvision dataset with a transform of another module": (
        "loader = DataLoader(datasets.MNIST('data', transform=augment))",
        "`augment` of module `data`",
    ),
    "a composed transform, one part of another module": (
        "how = transforms.Compose([transforms.ToTensor(), augment])\n"
        "loader = DataLoader(datasets.MNIST('data', transform=how))",
        "`augment` of module `data`",
    ),
    "a name that only a star import can bind": (
        "from more import *\nloader = DataLoader(Other())",
        "`Other`",
    ),
}


@pytest.mark.parametrize("text", SEEN.values(), ids=SEEN)
def test_what_this_file_and_known_libraries_make_is_seen(text: str) -> None:
    assert _unseen(text) == ("", "")


@pytest.mark.parametrize(("text", "unseen"), UNSEEN.values(), ids=UNSEEN)
def test_what_other_modules_and_callers_make_is_not(text: str, unseen: str) -> None:
    assert _unseen(text) == (unseen, unseen)


def test_what_was_saved_may_lie_on_a_device_but_is_no_open_file() -> None:
    text = _class("return self.source[i]", "torch.load('x.pt')")
    assert _unseen(text) == ("`torch.load`", "")
    assert _unseen(_class("return self.source[i]", "torch.load('x', map_location='cpu')"))[0] == ""


def test_an_array_is_on_the_host_though_a_file_may_be_open_behind_it() -> None:
    text = _class("return torch.from_numpy(self.source[i])", "load()")
    assert _unseen(text) == ("", "`load` of module `data`")


@pytest.mark.parametrize(
    ("collate", "unseen"),
    [
        ("lambda items: torch.stack(items)", ""),
        ("torch.utils.data.default_collate", ""),
        ("load", "`load` of module `data`"),
        ("own", ""),
        ("half", "`load` of module `data`"),
        ("Padding(3)", ""),
        ("Base(3)", "`Base` of module `data`"),
    ],
)
def test_collate_functions(collate: str, unseen: str) -> None:
    script = _script(f"""
        def own(items):
            xs, ys = zip(*items)
            return torch.stack(xs), torch.tensor(ys)
        def half(items):
            return load(items), 1
        class Padding:
            def __init__(self, n):
                self.n = n
            def __call__(self, items):
                return torch.nn.utils.rnn.pad_sequence(items)
        loader = DataLoader([], collate_fn={collate})
        """)
    (site,) = script.calls.of("torch.utils.data.DataLoader")
    given = site.given("collate_fn")
    assert given is not None
    assert script.loaders.provenance.unseen_batches(given.value) == unseen


@pytest.mark.parametrize(
    ("value", "unseen"),
    [
        ("F.cross_entropy(out, y)", ""),
        ("(out.argmax(1) == y).sum()", ""),
        ("(load(x) == y).sum()", "`load` of module `data`"),
        ("(load(x).argmax(1) == y.to('cuda')).sum()", ""),
        ("load(x)", "`load` of module `data`"),
        ("load(x).detach()", ""),
        ("load(x).mean()", "`load` of module `data`"),
        ("own(x)", "`load` of module `data`"),
        ("mse(out, y)", ""),
        ("criterion(out, y)", "`criterion`, which callers give,"),
    ],
)
def test_what_may_be_no_tensor(value: str, unseen: str) -> None:
    script = _script(f"""
        import torch.nn.functional as F
        mse = torch.nn.MSELoss()
        def own(x):
            return load(x)
        def evaluate(model, loader, criterion):
            model.eval()
            for x, y in loader:
                out = model(x)
                found = {value}
                found.item()
        """)
    (site,) = script.calls.of_methods("item")
    assert script.loaders.provenance.unseen_tensor(site.receiver) == unseen


@pytest.mark.parametrize(
    "text",
    [
        "self.x = change(self.x)\n        self.x = change(self.x)",
        "self.x = self.x",
        "self.x, self.y = self.y, self.x",
        "x = change(x)\n        self.x = x",
    ],
)
def test_what_is_made_of_itself_ends(text: str) -> None:
    body = _class("x = change(self.x)\n        x = change(x)\n        return x", init=text)
    assert _unseen("def change(x):\n    return change(x)\n" + body) is not None


def test_a_dataset_that_is_its_own_transform() -> None:
    text = (
        "from torchvision.datasets import MNIST\n"
        "from torch.utils.data import DataLoader\n"
        "d = {}\n"
        'd["k"] = MNIST(d["k"], transform=d["k"])\n'
        'loader = DataLoader(d["k"])\n'
    )
    script = Script.parse(Source("train.py", text))
    (site,) = script.calls.of("torch.utils.data.DataLoader")
    assert script.loaders.provenance.unseen_tensors(site.node.args[0].value) == ""
