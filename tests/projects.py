"""Projects on the disk, for tests of what modules show of each other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

__all__ = ["python_finds", "write"]

_FIND: Final = """
import importlib, json, sys
folders, module, expressions = json.loads(sys.argv[1])
sys.path[:0] = folders
names = vars(importlib.import_module(module))
found = [eval(each, names) for each in expressions]
print(json.dumps([(each.__code__.co_filename, each.__name__) for each in found]))
"""


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write the files of a project, and a mark of its root."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "setup.cfg").touch()
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def python_finds(
    root: Path, folders: Iterable[str], module: str, expressions: list[str]
) -> list[tuple[str, str]]:
    """Return the file and the name of the functions that expressions in a module stand for."""
    asked = json.dumps([[str(root / each) for each in folders], module, expressions])
    answer = subprocess.run(
        [sys.executable, "-c", _FIND, asked], capture_output=True, text=True, check=True
    )
    return [
        (Path(path).relative_to(root).as_posix(), name) for path, name in json.loads(answer.stdout)
    ]
