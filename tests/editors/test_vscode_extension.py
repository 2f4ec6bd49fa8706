"""The extension for VS Code: built, driven in Node against the real server, and packed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from checkouts import ROOT

SOURCES = ROOT / "editors" / "vscode"
OFFLINE = r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH"
OLDEST_NODE = 20


def npm(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["npm", *words],
        cwd=folder,
        env={**os.environ, "TORCHLINT_PYTHON": sys.executable, "NO_UPDATE_NOTIFIER": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
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


def test_its_types_are_right(extension: Path) -> None:
    done = npm(extension, "run", "--silent", "check")
    assert done.returncode == 0, done.stdout


def test_it_serves_findings_fixes_and_pages(extension: Path) -> None:
    done = npm(extension, "run", "--silent", "test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^(#|ℹ) fail 0$", done.stdout, re.MULTILINE)


def test_it_is_packed_with_what_it_needs_and_nothing_else(extension: Path) -> None:
    done = npm(extension, "run", "--silent", "package")
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(extension / "torchlint.vsix") as packed:
        names = {name.removeprefix("extension/") for name in packed.namelist()}
    assert names == {
        *("[Content_Types].xml", "extension.vsixmanifest"),
        *("package.json", "readme.md", "LICENSE.txt", "dist/extension.js"),
    }


def test_its_manifest_agrees_with_the_project() -> None:
    manifest = json.loads((SOURCES / "package.json").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'Repository = "{manifest["repository"]["url"]}"' in project
    assert f'__version__ = "{manifest["version"]}"' in (ROOT / "torchlint/__init__.py").read_text()
    sources = "".join(file.read_text(encoding="utf-8") for file in SOURCES.glob("src/*.ts"))
    for command in manifest["contributes"]["commands"]:
        assert f'registerCommand("{command["command"]}"' in sources
    readme = (SOURCES / "README.md").read_text(encoding="utf-8")
    for setting in manifest["contributes"]["configuration"]["properties"]:
        assert f"`{setting}`" in readme
