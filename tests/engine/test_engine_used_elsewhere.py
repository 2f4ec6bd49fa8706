from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from notebook_samples import code, notebook

from torchlint.config import Settings
from torchlint.engine import Project, check_paths, check_source, fix_paths, fix_source
from torchlint.engine.usedelsewhere import Projects, usage_unknown
from torchlint.program.folder import MOST_FILES
from torchlint.registry import load_registry
from torchlint.source import Source
from torchlint.timestamps import TIMESTAMP_MARGIN

REGISTRY = load_registry()
MODULE = """\
import torch
from torch.autograd import Variable


def start():
    return Variable(torch.zeros(1))
"""
LINE = "from torch.autograd import Variable\n"
FIXED = MODULE.replace("Variable(torch.zeros(1))", "torch.zeros(1)")
STAR = "from a import *\nx = Variable(torch.zeros(1), requires_grad=True)\n"


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _project() -> Project:
    return Project(REGISTRY, {"select": ("TL408", "TL302")}, isolated=True)


def _fixed(*paths: Path, jobs: int = 1) -> list[str]:
    results = list(fix_paths(paths, _project(), jobs=jobs))
    assert [each.errors for each in results] == [()] * len(results)
    return [each.after.text for each in results]


def _offered(path: Path, cache: Path | None = None) -> list[Any]:
    (result,) = check_paths([path], _project(), jobs=1, cache_dir=cache)
    return [edit.text for each in result.findings if each.fix for edit in each.fix.edits] + [
        result.source.text[edit.span.start : edit.span.end]
        for each in result.findings
        if each.fix and result.source
        for edit in each.fix.edits
    ]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("a.py", {"b.py": STAR}),
        ("a.py", {"b.py": "from a import start, Variable as V\n"}),
        ("a.py", {"b.py": "from a import (  # (both)\n    start,\n    Variable,\n)\n"}),
        ("a.py", {"b.py": "from a import start, \\\n    Variable\n"}),
        ("a.py", {"b.py": "import a\nx = a.Variable(y)\n"}),
        ("a.py", {"b.py": "import os, a as c\nx = c . Variable(y)\n"}),
        ("a.py", {"b.py": "import a\nx = getattr(a, 'Variable')\n"}),
        ("a.py", {"b.py": "m = __import__('importlib').import_module('a')\nm.Variable(y)\n"}),
        ("a.py", {"b.py": "from unittest import mock\nmock.patch('a.Variable')\n"}),
        ("a.py", {"sub/b.py": "from a import *\n"}),
        ("p/a.py", {"b.py": "from p.a import Variable\n"}),
        ("p/a.py", {"b.py": "from p import a\na.Variable(y)\n"}),
        ("p/a.py", {"b.py": "import p\np.a.Variable(y)\n", "p/__init__.py": "from . import a\n"}),
        ("p/a.py", {"p/b.py": "from .a import *\n"}),
        ("p/a.py", {"p/__init__.py": "from .a import *\n", "b.py": "import p\np.Variable(y)\n"}),
        ("p/__init__.py", {}),
        ("src/p/a.py", {"tests/conftest.py": "from p.a import Variable\n"}),
        ("runs/conf.py", {"runs/b.py": "from conf import Variable\n"}),
        ("x/utils.py", {"y/utils.py": "", "b.py": "from y.utils import Variable\n"}),
        ("a.py", {"b.ipynb": notebook(code("y = 1\nfrom a import Variable"))}),
        ("a.py", {"b.ipynb": notebook(code("%run a.py"), code("Variable(y)"))}),
        ("a.py", {"b.ipynb": '{"cells": "import a\\nfrom a import Variable'}),
        ("a.py", {"b.py": "import p\np.c.Variable(y)\n", "p.py": "import a as c\n"}),
        ("a.py", {"b.py": "from gone import *\nVariable(y)\n"}),
    ],
)
def test_an_import_that_another_file_takes_stays(
    tmp_path: Path, name: str, files: dict[str, str]
) -> None:
    _write(tmp_path, {"pyproject.toml": "", name: MODULE, **files})
    assert _fixed(tmp_path / name) == [FIXED]
    assert LINE not in _offered(tmp_path / name)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"b.py": "from a import start\nfrom torch.autograd import Variable\nVariable(x)\n"},
        {"b.py": "import a\nimport torch\ntorch.autograd.Variable(a.start())\n"},
        {"b.py": "from c import *\nVariable(x)\n", "c.py": "from a import start\n"},
        {".venv/lib/b.py": STAR},
        {"b.py": "from random import *\nVariable(y)\n"},
        {"b.py": "import alpha\nalpha.Variable\n"},
    ],
)
def test_an_import_that_no_other_file_takes_goes(tmp_path: Path, files: dict[str, str]) -> None:
    _write(tmp_path, {"pyproject.toml": "", "a.py": MODULE, **files})
    assert _fixed(tmp_path / "a.py") == [FIXED.replace(LINE, "")]
    assert LINE in _offered(tmp_path / "a.py")


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("__all__ = ['start']\n", False),
        ("__all__: list[str] = [\n    'start',\n]\n", False),
        ("__all__ = ['start', 'Variable']\n", True),
        ("__all__ = ['start']\n__all__ += other.__all__\n", True),
        ("__all__ = 'start Variable'.split()\n", True),
    ],
)
def test_a_star_brings_what_all_names(tmp_path: Path, line: str, stays: bool) -> None:
    _write(tmp_path, {"pyproject.toml": "", "a.py": MODULE + line, "b.py": STAR})
    assert (LINE in _fixed(tmp_path / "a.py")[0]) is stays


def test_what_users_leave_out_takes_names_all_the_same(tmp_path: Path) -> None:
    files = {"pyproject.toml": "[tool.torchlint]\nexclude = ['b.py']\n", "b.py": STAR}
    _write(tmp_path, {"a.py": MODULE, **files})
    assert _fixed(tmp_path / "a.py") == [FIXED]


def test_files_of_no_project_are_looked_for_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, {"sub/a.py": MODULE, "b.py": "from sub.a import Variable\n"})
    assert _fixed(tmp_path / "sub/a.py") == [FIXED.replace(LINE, "")]
    monkeypatch.chdir(tmp_path)
    assert _fixed(tmp_path / "sub/a.py") == [FIXED]


def test_a_commented_import_with_many_comments_is_read_once(tmp_path: Path) -> None:
    left = "# from a import (\n" + "#     Variable, and some words about it\n" * 40
    _write(tmp_path, {"pyproject.toml": "", "a.py": MODULE, "b.py": left})
    assert _fixed(tmp_path / "a.py") == [FIXED.replace(LINE, "")]


def test_in_a_project_that_is_too_large_imports_stay(tmp_path: Path) -> None:
    _write(tmp_path, {"pyproject.toml": "", "a.py": MODULE})
    for number in range(MOST_FILES):
        (tmp_path / f"x{number}.py").touch()
    assert _fixed(tmp_path / "a.py") == [FIXED]


def test_where_nothing_can_be_looked_at_imports_stay(tmp_path: Path) -> None:
    settings = Settings(select=("TL408",))
    rules = REGISTRY.select(settings)
    source = Source(str(tmp_path / "unsaved.py"), MODULE)
    for used_elsewhere in (usage_unknown, Projects().used_elsewhere):
        assert (
            fix_source(source, rules, settings, used_elsewhere=used_elsewhere).after.text == FIXED
        )
        (found,) = check_source(source, rules, settings, used_elsewhere=used_elsewhere).findings
        assert found.fix is not None
        assert source.edited(found.fix.edits).text == FIXED


OLD = """\
import torch
from torch.cuda.amp import autocast

with autocast():
    torch.ones(1)
"""


def test_an_import_does_not_change_what_others_take(tmp_path: Path) -> None:
    _write(tmp_path, {"pyproject.toml": "", "a.py": OLD, "b.py": "from a import autocast\n"})
    (result,) = check_paths([tmp_path / "a.py"], _project(), jobs=1)
    assert [each.fix for each in result.findings] == [None]
    (tmp_path / "b.py").unlink()
    assert "from torch.amp import autocast" in _fixed(tmp_path / "a.py")[0]


@pytest.mark.parametrize("jobs", [1, 2])
def test_fixes_do_not_depend_on_what_was_fixed_before(tmp_path: Path, jobs: int) -> None:
    long = f"{'#' * 40_000}\n"
    taker = f"import importlib\n{MODULE}z = importlib.import_module('z')\n{long}"
    files = {"a.py": taker, "z.py": f"{MODULE}{long}", "pyproject.toml": ""}
    _write(tmp_path, files)
    command = [sys.executable, "-m", "torchlint", "fix", "--isolated", "--no-cache", "--apply"]
    done = subprocess.run(
        [*command, "--jobs", str(jobs), "--select", "TL408", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Made 2 fixes in 2 files." in done.stderr
    assert "Variable" not in (tmp_path / "a.py").read_text()
    assert LINE in (tmp_path / "z.py").read_text()


def test_what_is_kept_of_a_file_counts_while_others_take_the_same(tmp_path: Path) -> None:
    _write(tmp_path, {"pyproject.toml": "", "a.py": MODULE})
    cache = tmp_path / "cache"
    assert LINE in _offered(tmp_path / "a.py", cache)
    assert LINE in _offered(tmp_path / "a.py", cache)
    (tmp_path / "b.py").write_text(STAR)
    assert LINE not in _offered(tmp_path / "a.py", cache)
    assert LINE not in _offered(tmp_path / "a.py", cache)
    (tmp_path / "b.py").unlink()
    assert LINE in _offered(tmp_path / "a.py", cache)
    (kept,) = (json.loads(file.read_text()) for file in cache.glob("*.json"))
    assert len(kept) == 1


def test_scripts_run_before_and_after(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="runs scripts with torch")
    _write(tmp_path, {"a.py": MODULE, "b.py": STAR})
    for path in (tmp_path / "a.py", tmp_path / "b.py"):
        path.write_text(_fixed(path)[0])
        subprocess.run([sys.executable, "b.py"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("named", [".", "a.py"])
def test_what_a_check_prints_again_is_what_it_would_find(tmp_path: Path, named: str) -> None:
    _write(tmp_path, {"pyproject.toml": "", "a.py": MODULE, "b.py": "y = 1\n"})

    def offered() -> bool:
        command = [sys.executable, "-m", "torchlint", "check", "--output-format", "json", named]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        found = json.loads(done.stdout)
        edits = [edit for each in found if each["fix"] for edit in each["fix"]["edits"]]
        return any(edit["location"]["row"] == 2 for edit in edits)

    time.sleep(TIMESTAMP_MARGIN / 1e9)
    assert [offered(), offered()] == [True, True]
    (tmp_path / "b.py").write_text(STAR)
    assert [offered(), offered()] == [False, False]
