from __future__ import annotations

from pathlib import Path

import pytest
from cli_shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Give an empty folder to run torchlint in."""
    return Shell(tmp_path)
