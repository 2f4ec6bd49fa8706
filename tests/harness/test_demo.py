"""The demo convinces on a busy machine, too: by facts, and by a last line that says what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from processes import stopped

ROOT = Path(__file__).parents[2]
LONG = 500
"""Seconds for which the processors stay busy at most."""
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
BURN = "import time; end = time.monotonic() + 600\nwhile time.monotonic() < end: pass"
"""Ends by itself, so that it outlives no test that is killed."""


@pytest.fixture
def load() -> Iterator[None]:
    """Keep every processor busy."""
    burn = [sys.executable, "-c", "while True: pass"]
    with ExitStack() as others:
        for _ in range(os.cpu_count() or 1):
            others.enter_context(stopped(subprocess.Popen(burn), LONG))
        yield


@pytest.mark.usefixtures("load")
def test_the_demo_ends_decided_on_a_busy_machine(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *("make", "--no-print-directory", "-o", ".venv/demo.stamp"),
            *(f"BIN={Path(sys.executable).parent}", "demo"),
        ],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) <= 60, done.stdout
    assert done.stdout.count("  numbers           equal bit for bit (50 losses, 4 ") == 3
    assert done.stdout.count("  syncs per step    1 -> 0\n") == 2
    *_, page, last = lines
    file = Path(page.removeprefix("As a page: "))
    assert file.is_relative_to(tmp_path)
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    gain = r"\d\.\dx (as fast|less processor time)( together)?"
    said = rf"[12] of 2 fixes kept( \(TL\d+\))?, {gain}, numbers equal bit for bit: `(.*)` writes"
    found = re.match(said, last)
    assert found, last
    command = "torchlint verify --apply --select TL108,TL201 --steps 40 --rounds 2 train.py"
    assert found[4] == command
