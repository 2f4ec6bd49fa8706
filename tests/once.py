"""What is costly to make is made once, by whichever worker asks first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

__all__ = ["once"]


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], str]) -> str:
    """Return the text that a function makes in a folder, the same for all workers of this run."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    made = folder / "made.txt"
    with FileLock(folder / "lock"):
        if not made.exists():
            made.write_text(make(folder), encoding="utf-8")
    return made.read_text(encoding="utf-8")
