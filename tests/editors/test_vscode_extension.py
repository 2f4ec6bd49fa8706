"""The extension for VS Code: built, driven in Node against the real server, and packed."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

from checkouts import ROOT
from editors.packages import npm

SOURCES = ROOT / "editors" / "vscode"


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
