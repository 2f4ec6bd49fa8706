"""Running npm in the folder of the extension."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["npm"]


def npm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["npm", *words],
        cwd=folder,
        env={**os.environ, "TORCHLINT_PYTHON": sys.executable, "NO_UPDATE_NOTIFIER": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
