"""Scripts of two files: a fix of one never rests on what the other was not looked at for.

Each script runs as it is; what the safe fixes make of it prints the same, and the unsafe ones,
which say what they could not see, break it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from torchlint.config import Settings
from torchlint.engine import check_source, fix_source
from torchlint.registry import load_registry
from torchlint.source import Source
from torchlint.testing import examples_of

REGISTRY = load_registry()
FAMILIES = ("TL1", "TL2")

START = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
whole = TensorDataset(torch.arange(8.0).reshape(8, 1), torch.ones(8))
"""

CASES = {
    "a network whose own method counts its calls": (
        """
        import torch
        class Net(torch.nn.Linear):
            calls = 0
            def train(self, mode=True):
                Net.calls += mode
                return super().train(mode)
        """,
        """
        from other import Net
        net = Net(1, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in DataLoader(whole, batch_size=None):
            net.train()
            net(x).sum().backward()
            optimizer.step()
        print(Net.calls)
        """,
        "TL206",
        "`Net` of module `other` is not visible here",
    ),
    "a class that reads the batch size of the loader it keeps": (
        """
        class Report:
            def __init__(self, loader):
                self.loader = loader
            def size(self):
                return self.loader.batch_size * len(self.loader)
        """,
        """
        from other import Report
        loader = DataLoader(whole, batch_size=4)
        report = Report(loader)
        for x, y in loader:
            print(x.sum())
        print(report.size())
        """,
        "TL108",
        "code that is not visible here gets the loader",
    ),
    "a criterion that answers with a number of NumPy": (
        """
        import numpy as np
        def criterion(out, y):
            return np.float32(((out - y) ** 2).mean().item())
        """,
        """
        import other
        def evaluate(net, loader, criterion):
            net.eval()
            total = 0.0
            with torch.no_grad():
                for x, y in loader:
                    total += criterion(net(x.to(device)), y.to(device)).item()
            return total
        net = torch.nn.Flatten(0).to(device)
        print(evaluate(net, DataLoader(whole), other.criterion))
        """,
        "TL202",
        "`other.criterion` is not visible here",
    ),
    "items that are objects with a `to` of their own": (
        """
        import collections, torch
        class Encoding(collections.UserDict):
            def to(self, device):
                return Encoding({name: value.to(device) for name, value in self.items()})
        class Texts(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                return Encoding({"ids": torch.tensor([i, i])}), i
        """,
        """
        from other import Texts
        for x, y in DataLoader(Texts(), batch_size=2, pin_memory=torch.cuda.is_available()):
            print(x.to(device)["ids"].tolist())
        """,
        "TL204",
        "an object of a class that is not visible here",
    ),
}


def _fixed(text: str, *, unsafe: bool) -> str:
    settings = Settings(select=FAMILIES, unsafe_fixes=unsafe)
    return fix_source(Source("train.py", text), REGISTRY.select(settings), settings).after.text


def _reasons(text: str, code: str) -> list[str]:
    settings = Settings(select=(code,))
    result = check_source(Source("train.py", text), REGISTRY.select(settings), settings)
    return [each.fix.because for each in result.findings if each.fix is not None]


DRIVER = """\
import contextlib, io, json, pathlib, runpy, sys
said = {}
for path in sorted(pathlib.Path.cwd().glob("*/*.py")):
    if path.name == "other.py":
        continue
    sys.modules.pop("other", None)
    sys.path[0] = str(path.parent)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(path), run_name="__main__")
    except Exception as error:
        printed.write(repr(error))
    said[f"{path.parent.name}/{path.stem}"] = printed.getvalue()
print(json.dumps(said))
"""
"""Runs every script in one process, for torch takes long to import."""


def test_scripts_of_two_files_run_alike_unless_an_unsafe_fix_is_asked_for(tmp_path: Path) -> None:
    for number, (other, text, code, because) in enumerate(CASES.values()):
        script = START + textwrap.dedent(text)
        reasons = _reasons(script, code)
        assert reasons, code
        assert all(because in each for each in reasons), reasons
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "other.py").write_text(textwrap.dedent(other), encoding="utf-8")
        (folder / "before.py").write_text(script, encoding="utf-8")
        (folder / "safe.py").write_text(_fixed(script, unsafe=False), encoding="utf-8")
        (folder / "unsafe.py").write_text(_fixed(script, unsafe=True), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", DRIVER],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    for number, sentence in enumerate(CASES):
        before = said[f"{number}/before"]
        assert "Error" not in before, sentence
        assert said[f"{number}/safe"] == before, sentence
        assert said[f"{number}/unsafe"] != before, sentence


def test_pinning_and_workers_rest_on_the_dataset_of_another_module() -> None:
    text = START + textwrap.dedent("""
        from other import Cached
        def main():
            for x, y in DataLoader(Cached(64, device), batch_size=8):
                print(x.to(device, torch.float32))
        if __name__ == "__main__":
            main()
        """)
    assert _fixed(text, unsafe=False) == text
    changed = _fixed(text, unsafe=True)
    assert "num_workers=" in changed
    assert "pin_memory=" in changed


@pytest.mark.parametrize("word", ["unsafe", "exact"])
def test_examples_that_name_their_safety_have_it(word: str) -> None:
    for head in REGISTRY.select(Settings(select=FAMILIES)):
        for example in examples_of(head.load()):
            if example.valid or word not in example.sentence.replace(":", " ").split():
                continue
            rules = REGISTRY.select(Settings(select=(head.code,)))
            result = check_source(Source("example.py", example.before), rules, example.settings)
            words = {each.fix.safety.word for each in result.findings if each.fix is not None}
            assert words == {word}, (head.code, example.sentence)
