"""Folders of killed verifications are removed by the next one, and no others."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from harness.scripts import PLAIN, write

from torchlint.harness.plan import ORIGINAL, Plan
from torchlint.harness.runs.runner import Runner

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks files by fcntl")

KILLED = """
import os, signal
from pathlib import Path
from torchlint.harness.plan import ORIGINAL, Plan
from torchlint.harness.runs.runner import Runner
runner = Runner(Plan(Path("train.py")), None)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_verification_removes_the_folder_of_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    (temporary / "torchlint-of-mine").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    script = write(tmp_path, PLAIN)
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False, cwd=tmp_path, timeout=300)
    assert killed.returncode == -9
    assert len(list(temporary.iterdir())) == 2
    first = Runner(Plan(script), None)
    second = Runner(Plan(script), None)
    folders = {"torchlint-of-mine", first.folder.name, second.folder.name}
    assert {path.name for path in temporary.iterdir()} == folders
    first.close()
    second.close()
    assert [path.name for path in temporary.iterdir()] == ["torchlint-of-mine"]


WITH_WORKERS = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    if __name__ == "__main__":
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for (x,) in DataLoader(TensorDataset(torch.randn(400, 4)), batch_size=2, num_workers=1):
            net(x).mean().backward()
            optimizer.step()
    """


def test_folders_of_loader_workers_are_removed_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The name of a socket in it may have about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="short-") as short:
        temporary = Path(short)
        (temporary / "pymp-of-mine").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", short)
        monkeypatch.setenv("TMPDIR", short)
        plan = Plan(write(tmp_path, WITH_WORKERS), steps=8, warmup=2, device="cpu", timeout=60)
        runner = Runner(plan, None)
        assert runner.run(ORIGINAL, "numbers").failure is None
        (made,) = runner.folder.rglob("made")
        for folder in map(Path, made.read_text().splitlines()):
            folder.mkdir(exist_ok=True)  # as a worker leaves it that is killed
        runner.close()
        assert [path.name for path in temporary.glob("pymp-*")] == ["pymp-of-mine"]
