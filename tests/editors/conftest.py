"""The extension for VS Code as built for the tests of this folder."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from checkouts import ROOT
from editors.packages import npm

SOURCES = ROOT / "editors" / "vscode"
OFFLINE = r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH"
OLDEST_NODE = 20


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the extension's folder, with the packages that it is built with."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("needs node and npm to build the extension")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(said.lstrip("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"needs node {OLDEST_NODE} or newer, not {said.strip()}")
    root = tmp_path_factory.mktemp("extension")
    ignored = shutil.ignore_patterns("node_modules", "build", "dist")
    folder = Path(shutil.copytree(SOURCES, root / "editors" / "vscode", ignore=ignored))
    shutil.copy(ROOT / "LICENSE", root)
    done = npm(folder, "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
    if done.returncode and re.search(OFFLINE, done.stderr):
        pytest.skip("needs the npm registry, which cannot be reached")
    assert done.returncode == 0, done.stderr
    return folder
