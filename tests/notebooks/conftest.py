from __future__ import annotations

from pathlib import Path

import pytest
from cli_shell import QuickShell, Shell
from notebook_samples import TRAINING


@pytest.fixture
def quick(tmp_path: Path) -> Shell:
    """Return a folder with a notebook, in which torchlint is run within this process."""
    shell = QuickShell(tmp_path)
    shell.write("a.ipynb", TRAINING)
    return shell
