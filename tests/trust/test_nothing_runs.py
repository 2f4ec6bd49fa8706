"""`check`, `fix` and `audit` run nothing of what they look at, and reach for nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import torchlint

WATCHED = Path(__file__).with_name("watched.py")
SLOW = """
import marker, torch
import helper
from torch.utils.data import DataLoader
open({marker!r}, "w").close()
model = torch.nn.DataParallel(helper.Net()).cuda()
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(helper.Items(), batch_size=8, num_workers=2)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        print(loss.item())
"""
LEAVES_A_MARK = "open({marker!r}, 'w').close()\n"
MAGICS = (
    "%run helper.py\n",
    "!touch {marker}\n",
    "%%bash\ntouch {marker}\n",
    "%load_ext helper\n",
    "x = !touch {marker}\n",
    "get_ipython().system('touch {marker}')\n",
    SLOW,
)
CODE = Path(torchlint.__file__).resolve().parents[1]
PARTS = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), CODE}


@dataclass(frozen=True)
class Run:
    """What one run did, by its audit events."""

    code: int
    events: list[list[str]]

    def of(self, *kinds: str) -> list[list[str]]:
        """Return the events whose name begins with one of some words."""
        return [event for event in self.events if event[0].startswith(kinds)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a repository in which everything that could be imported leaves a mark."""
    folder = tmp_path_factory.mktemp("hostile")
    marker = str(folder / "MARK")
    (folder / "train.py").write_text(SLOW.format(marker=marker))
    names = (
        "helper marker torch libcst click tomli tomllib pathspec packaging conftest setup "
        "sitecustomize usercustomize torchlint_rules"
    )
    for name in names.split():
        (folder / f"{name}.py").write_text(LEAVES_A_MARK.format(marker=marker))
    (folder / "torchlint.toml").write_text('extend-select = ["TL211"]\n')
    known = {"path": "train.py", "code": "TL501", "statement": "__import__('helper')", "count": 1}
    baseline = {"tool": "torchlint", "version": 1, "findings": [known]}
    (folder / "baseline.json").write_text(json.dumps(baseline))
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": text.format(marker=marker)}
        for text in MAGICS
    ]
    document = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "train.ipynb").write_text(json.dumps(document))
    (folder / "$(touch MARK).py").write_text(LEAVES_A_MARK.format(marker=marker) + "import torch\n")
    return folder


def _run(project: Path, out: Path, *arguments: str) -> Run:
    subprocess.run(
        [sys.executable, str(WATCHED), str(out), *arguments],
        cwd=project,
        check=True,
        capture_output=True,
    )
    told = json.loads(out.read_text())
    return Run(told["code"], told["seen"])


@pytest.mark.parametrize(
    "command",
    [
        ("check", "--no-cache", "."),
        ("check", "--jobs", "1", "--output-format", "sarif", "."),
        ("fix", "--no-cache", "--unsafe-fixes", "."),
        ("check", "--no-cache", "--baseline", "baseline.json", "--verbose", "."),
        ("audit", "train.py", "train.ipynb"),
    ],
    ids=" ".join,
)
def test_what_a_run_touches(project: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    run = _run(project, tmp_path / "seen.json", *command)
    assert run.code == (0 if command[0] == "audit" else 1)
    assert not (project / "MARK").exists()
    assert run.of("open"), "the hook saw nothing"
    for _, name, mode in run.of("open"):
        path = Path(name).resolve() if not name.isdigit() else None
        if path is None or name in ("/dev/null",):
            continue
        inside = path.is_relative_to(project)
        ours = any(path.is_relative_to(part) for part in PARTS)
        assert inside or ours or path.is_relative_to("/proc"), name
        if any(letter in mode for letter in "wax+"):
            assert ".torchlint_cache" in path.parts, name
    assert [code for _, code in run.of("exec") if str(project) in code] == []
    assert run.of("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn") == []
    imported = {name for _, name, *_ in run.of("import")}
    assert imported.isdisjoint({"torch", "numpy", "helper", "marker", "conftest", "setup"})


def test_a_planted_cache_is_data(project: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = _run(project, tmp_path / "a.json", "check", "--cache-dir", str(cache), "train.py")
    (kept,) = (each for each in cache.glob("*.json") if "-" not in each.name)
    entries = json.loads(kept.read_text())
    assert first.code == 1
    for entry in entries.values():
        entry[1:] = [[["__import__('os')"], -1, 10**9, "\x1b[2J", [[0, "x"]], {}]]
    kept.write_text(json.dumps(entries))
    again = _run(project, tmp_path / "b.json", "check", "--cache-dir", str(cache), "train.py")
    assert again.code == 1
    assert not (project / "MARK").exists()
