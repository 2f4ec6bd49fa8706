"""A file that imports what its package lacks never runs, if nothing else imports it."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import write

from torchlint.program.index import Index
from torchlint.source import Source

START = "from lib.net import Net\n"
HERE = {"lib/__init__.py": "", "lib/net.py": "class Net: pass\nfrom lib.far import *\n"}


@pytest.mark.parametrize(
    ("start", "more", "is_broken"),
    [
        ("from lib.old import Net\n", {}, True),
        ("from lib.core.old import Net\n", {}, True),
        ("import lib.old\n", {}, True),
        ("from lib.net import Old\n", {}, False),  # a star import may bind it
        ("from lib.net import Old\n", {"lib/far.py": ""}, True),
        ("from lib.net import Old\n", {"lib/far.py": "Old = 1\n"}, False),
        ("try:\n    from lib.old import Net\nexcept ImportError:\n    Net = None\n", {}, False),
        ("from lib.old import Net\n", {"lib/old.cpp": ""}, False),
        ("from lib.old import Net\n", {"setup.py": "Extension('lib.old')\n"}, False),
        ("from lib._version import version\n", {}, False),
        ("from lib.old import Net\n", {"main.py": "import train\n"}, False),
        ("import sys\nsys.path.append('..')\nfrom lib.old import Net\n", {}, False),
    ],
)
def test_imports_of_what_is_not_there(
    start: str, more: dict[str, str], is_broken: bool, tmp_path: Path
) -> None:
    write(tmp_path, {**HERE, **more, "train.py": START + start})
    assert Index(tmp_path).view(tmp_path / "train.py").is_broken is is_broken


def test_a_package_of_another_project_may_have_more(tmp_path: Path) -> None:
    write(tmp_path, {**HERE, "train.py": "from lib.old import Net\n"})
    assert not Index(tmp_path).view(tmp_path / "train.py").is_broken


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [("New = 1\n", True), ("def bind():\n    global Old\n    Old = 1\n", False)],
)
def test_a_module_that_is_only_in_an_editor_counts(
    text: str, is_broken: bool, tmp_path: Path
) -> None:
    write(tmp_path, {**HERE, "train.py": f"{START}from lib.new import Old\n"})
    index = Index(tmp_path)
    index.change(tmp_path / "lib/new.py", Source("lib/new.py", text))
    assert index.view(tmp_path / "train.py").is_broken is is_broken
