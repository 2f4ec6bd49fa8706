from __future__ import annotations

from pathlib import Path

import pytest
from cli_shell import QuickShell, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return an empty folder to run torchlint in."""
    return Shell(tmp_path)


@pytest.fixture
def quick(tmp_path: Path) -> Shell:
    """Return an empty folder to run torchlint in, within this process."""
    return QuickShell(tmp_path)
