"""Fixes meet: whatever rule goes first, the text at the end is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "fixtures" / "scripts").glob("*/before.py"))


PATTERNS = ("tl102*", "tl204*", "tl307*", "tl601*")


def _orders(*scripts: Path) -> str:
    """Compose the rules on some scripts in random orders, and give what was counted."""
    command = [sys.executable, str(ROOT / "benchmarks" / "orders.py"), "--subsets=1"]
    done = subprocess.run(
        [*command, *map(str, scripts)], capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
def test_the_order_of_fixes_makes_no_difference_to_a_script(script: Path) -> None:
    assert "1 files, 0 subsets" not in _orders(script)


def test_nor_to_the_fixtures_of_rules_that_others_meet() -> None:
    folder = ROOT / "fixtures" / "rules"
    counted = _orders(*(next(folder.glob(f"{pattern}/slow.py")) for pattern in PATTERNS))
    assert counted.startswith(f"{len(PATTERNS)} files")
