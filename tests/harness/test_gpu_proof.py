"""The proof for a real device, rehearsed on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def proof(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu_proof.py"), *arguments],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_part_is_measured_once_and_written_as_a_table(tmp_path: Path) -> None:
    call = ("syncs", "--device", "cpu", "--small", "--into", str(tmp_path))
    done = proof(*call)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("pass  syncs: two waits in a step: 2.0 -> 0.0")
    written = json.loads((tmp_path / "gpu-proof.json").read_bytes())
    assert [row["passed"] for row in written["parts"]["syncs"]] == [True]
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
