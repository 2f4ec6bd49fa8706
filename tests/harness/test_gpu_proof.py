"""The proof for a real device, rehearsed on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.pretend.build import library, unfit

ROOT = Path(__file__).resolve().parents[2]


def proof(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu_proof.py"), *arguments],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_part_is_measured_once_and_written_as_a_table(tmp_path: Path) -> None:
    call = ("syncs", "--device", "cpu", "--small", "--into", str(tmp_path))
    done = proof(*call)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("pass  syncs: two waits in a step: 2.0 -> 0.0")
    written = json.loads((tmp_path / "gpu-proof.json").read_bytes())
    jobs = written["parts"]["syncs"]
    assert {name: [row["passed"] for row in rows] for name, rows in jobs.items()} == {
        "two waits in a step": [True]
    }
    table = (tmp_path / "gpu-proof.md").read_text(encoding="utf-8")
    assert "| syncs | two waits in a step | 2.0 -> 0.0 at lines [23] |" in table
    assert proof(*call).stdout == "0 rows are not as they must be\n"


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac may have one")
def test_without_an_accelerator_it_says_so() -> None:
    done = proof("syncs")
    assert (done.returncode, done.stdout.partition(";")[0]) == (
        2,
        "this torch sees no accelerator",
    )


@pytest.mark.skipif(bool(unfit()), reason=unfit() or "it can be built")
def test_an_accelerator_is_proved_without_its_name_in_the_scripts(tmp_path: Path) -> None:
    library()
    information = tmp_path / "pretend-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: pretend\nVersion: 1\n", encoding="utf-8")
    # torch itself loads an accelerator that is installed so.
    entry = "[torch.backends]\npretend = harness.pretend.accelerator:configure\n"
    (information / "entry_points.txt").write_text(entry, encoding="utf-8")
    path = os.pathsep.join((str(tmp_path), str(ROOT / "tests")))
    done = proof("syncs", "--small", "--into", str(tmp_path), path=path)
    assert (done.returncode, done.stderr) == (0, "")
    written = json.loads((tmp_path / "gpu-proof.json").read_bytes())
    assert (written["device"], written["machine"]["names"]) == ("pretend", ["Pretend 0"])
