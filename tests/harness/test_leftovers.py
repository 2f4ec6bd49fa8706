"""Folders of killed verifications are removed by the next one, and no others."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from harness.scripts import PLAIN, write

from torchlint.harness.plan import Plan
from torchlint.harness.runs.runner import Runner

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks files by fcntl")

KILLED = """
import os, signal
from pathlib import Path
from torchlint.harness.plan import Plan
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
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False, cwd=tmp_path)
    assert killed.returncode == -9
    assert len(list(temporary.iterdir())) == 2
    first = Runner(Plan(script), None)
    second = Runner(Plan(script), None)
    folders = {"torchlint-of-mine", first.folder.name, second.folder.name}
    assert {path.name for path in temporary.iterdir()} == folders
    first.close()
    second.close()
    assert [path.name for path in temporary.iterdir()] == ["torchlint-of-mine"]
