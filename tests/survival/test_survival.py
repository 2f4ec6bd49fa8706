"""Programs are tried before and after their fixes, and what a wrong fix breaks is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="programs are tried in forks")

TOOL = Path(__file__).parents[2] / "benchmarks" / "survival.py"

MODULES = {
    "layers.py": """
        from torch.autograd import Variable
        import torch.nn as nn
        import missing_package as missing
        from missing_package.deep import Base, decorate

        @decorate
        def block(width):
            with missing.context() as it:
                return nn.Linear(width, width)

        class Block(Base):
            names = [name for name in missing.names]
    """,
    "star.py": """
        from layers import *
        start = Variable(nn.Linear(1, 1).weight)
    """,
    "late.py": """
        import torch

        def score(values):
            return torch.stack(values).mean()

        if __name__ == "__main__":
            print(score([torch.zeros(1)]))
    """,
    "package/__init__.py": """
        from .parts import Net
    """,
    "package/parts.py": """
        from torch import nn
        class Net(nn.Linear): ...
    """,
    "user.py": """
        import sys
        from package import Net
        net = Net(2, 2)
    """,
    "plain.py": """
        def score(model, values):
            model.eval()
            return [model(value) for value in values]
    """,
    "rude.py": """
        import socket
        try:
            open("/tmp/survival-was-here", "w")
        except PermissionError:
            socket.create_connection(("127.0.0.1", 9), timeout=1)
    """,
    "train.py": """
        import argparse
        import time
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int, default=1000)
        args = parser.parse_args()
        steps = 1000
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net = nn.Linear(4, 1).cuda()
        data = TensorDataset(torch.randn(steps, 4), torch.randn(steps, 1))
        loader = DataLoader(data, batch_size=4, shuffle=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(args.epochs):
            total = 0.0
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(net(x), y)
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total:.4f} [{time.time():.6f} s]")
    """,
}
CELLS = (
    "%matplotlib inline\nimport json\nfrom torch.utils.data import DataLoader\n",
    "loader = DataLoader(list(range(8)), batch_size=2)\n",
    "import torch\nsteps = [torch.zeros(1)]\n",
    "for step in steps:\n    print(step, json.dumps(1))\n",
)
TRAINING = """
folder = "project"
script = "train.py"
arguments = ["--epochs", "2"]
prelude = "import torch; torch.manual_seed(1)"
[[substitutions]]
file = "train.py"
pattern = 'steps = \\d+'
replacement = "steps = 8"
"""
WRONG = {
    "layers.py": ("from torch.autograd import Variable\n", ""),
    "plain.py": ("def score", "import tensorflow\ndef score"),
    "late.py": ("import torch\n", "from torch import zeros\n"),
    "package/__init__.py": ("from .parts import Net", "from . import parts"),
    "notebook.ipynb": ("batch_size=2", "batch_size=2, pin_memory=torch.cuda.is_available()"),
    "train.py": ("lr=0.1", "lr=0.01"),
}


def _dedent(text: str) -> str:
    return re.sub(r"(?m)^ {8}", "", text).lstrip("\n").rstrip(" ")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name, text in MODULES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_dedent(text), encoding="utf-8")
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": it} for it in CELLS]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "notebook.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    trainings = tmp_path / "trainings"
    trainings.mkdir()
    (trainings / "regression.toml").write_text(TRAINING, encoding="utf-8")
    return folder


def _fixer(folder: Path, changes: dict[str, tuple[str, str]]) -> Path:
    """Write a program that takes the place of torchlint and makes these changes."""
    program = folder / "fixer"
    program.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        "if sys.argv[1] == 'check':\n"
        "    print('[]')\n"
        "else:\n"
        f"    for name, (old, new) in {changes!r}.items():\n"
        "        path = pathlib.Path(name)\n"
        "        text = path.read_text()\n"
        "        assert old in text, name\n"
        "        path.write_text(text.replace(old, new))\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


def _survey(project: Path, torchlint: Path) -> tuple[int, list[str]]:
    trainings, kept = project.with_name("trainings"), project.with_name("kept.jsonl")
    command = [sys.executable, str(TOOL), f"--torchlint={torchlint}", f"--trainings={trainings}"]
    done = subprocess.run(
        [*command, "--seconds=2", f"--kept={kept}", str(project)],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert not done.stderr, done.stderr
    return done.returncode, [line.strip() for line in done.stdout.splitlines()]


def test_what_a_wrong_fix_breaks_is_told(project: Path, tmp_path: Path) -> None:
    status, lines = _survey(project, _fixer(tmp_path, WRONG))
    assert status == 1
    other = next(at for at, line in enumerate(lines) if " unsafe " in line)
    safe, unsafe = (
        [line for line in part if line[0] in "!·"] for part in (lines[:other], lines[other:])
    )
    broken = {
        "! star.py: NameError: name 'Variable' is not defined",
        "! late.py: nothing binds torch",
        "! needs tensorflow, which it did not before",
        "! user.py: ImportError: cannot import name 'Net' from 'package' (/package/__init__.py)",
        "! notebook.ipynb: cell 1: NameError: name 'torch' is not defined",
    }
    results = [line for line in safe if "regression: " in line]
    assert set(safe) - set(results) == broken
    assert any(line.startswith("! regression: losses differ from step 1 on: ") for line in results)
    assert any(line.startswith("! regression: prints 'epoch 0 loss") for line in results)

    # A fix that says so may change results, but not break anything.
    assert {line for line in unsafe if line.startswith("!")} == broken
    assert any(line.startswith("· regression: losses differ from step 1 on: ") for line in unsafe)

    # Code is kept from the outside; what is not installed has stand-ins.
    kept = (tmp_path / "kept.jsonl").read_text(encoding="utf-8").splitlines()
    ends = {each["path"]: each for each in map(json.loads, kept) if each.get("kind")}
    assert not Path("/tmp/survival-was-here").exists()
    rude = "PermissionError: socket.getaddrinfo: kept from the outside"
    assert ends.pop("rude.py")["errors"] == [rude]
    assert ends.pop("train.py")["state"] == "endless"
    assert {end["state"] for end in ends.values()} == {"ok"}


def test_what_torchlint_fixes_still_runs(project: Path) -> None:
    (project / "star.py").unlink()
    status, lines = _survey(project, Path(sys.executable).with_name("torchlint"))
    assert status == 0, lines
    assert re.search(r" 6/6 of 8 +1/1 of 1 +1/1 of 1  whole .*TL204:1", lines[0]), lines
