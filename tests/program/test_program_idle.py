"""What no start of a project reaches is idle, unless somebody out of sight may use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import write

from torchlint.program.index import Index

NET = "class Net: pass\nclass Old: pass\n"
USE = "from net import Net\nNet()\n"
COPY = "from net import Net\nclass Train:\n    def run(self): Net()\n"
OWN = "from uses import *\n" + NET + "def run(): Old()\n"
STAR = "from gone import *\nfrom uses import *\nprint(1)\n"
USES = "from net import run\nrun()\n"
LOOKS = "import whole\nwhole.__dict__[kind]()\n"


@pytest.mark.parametrize(
    ("files", "idle"),
    [
        ({"net.py": NET, "train.py": USE}, "Old"),
        ({"net.py": NET, "train.py": USE, "old.py": "from net import Old\nOld()\n"}, ""),
        ({"net.py": NET, "train.py": USE, "old.py": "from net import Old\nOLD = Old()\n"}, "Old"),
        ({"net.py": NET, "train.py": USE, "look.ipynb": "{Old}"}, ""),
        ({"net.py": NET + "first = Old\n", "train.py": USE}, "first"),
        ({"net.py": NET + "print(Old())\n", "train.py": USE}, ""),
        ({"net.py": NET.replace("class Old", "@kept\nclass Old"), "train.py": USE}, ""),
        ({"net.py": NET, "train.py": USE, "old.py": "from net import Net\nprint Old()\n"}, ""),
        ({"net.py": NET, "train.py": USE, "old.py": "from net import Net\nprint Net()\n"}, "Old"),
        ({"net.py": NET, "train.py": USE, "old.py": "import_module(kind)\nprint 1\n"}, ""),
        ({"net.py": NET, "run.py": USES, "uses.py": OWN, "old.py": "print run()\n"}, ""),
        ({"net.py": OWN, "uses.py": "", "train.py": STAR + "Old()\n"}, ""),
        ({"net.py": OWN, "uses.py": "", "train.py": STAR + "Old = 1\n"}, "Net Old run"),
        ({"net.py": OWN, "uses.py": "", "train.py": STAR + "run()\n"}, ""),
        (
            {"net.py": OWN, "uses.py": "", "train.py": STAR.replace("gone", "tkinter") + "Old()\n"},
            "Net Old run",
        ),
        (
            {
                "net.py": OWN,
                "uses.py": "from gone import *",
                "train.py": "from uses import *\nOld()\n",
            },
            "",
        ),
        (
            {
                "net.py": OWN,
                "uses.py": "from gone import *",
                "train.py": "from uses import Old\nOld()\n",
            },
            "",
        ),
        (
            {
                "net.py": OWN,
                "uses.py": "from gone import *",
                "train.py": "import uses\nuses.Old()\n",
            },
            "",
        ),
        (
            {
                "net.py": OWN,
                "uses.py": "",
                "train.py": STAR + "class Train:\n    def run(self): Old()\n",
            },
            "Net Old run",
        ),
        ({"net.py": NET, "train.py": "import net\ngetattr(net, kind)()\n"}, ""),
        ({"net.py": NET, "train.py": "import net\nKINDS = {'net': net}\nKINDS[kind].Net()\n"}, ""),
        ({"net.py": NET, "whole.py": COPY, "train.py": LOOKS}, "Old"),
        ({"net.py": NET, "train.py": "import net\nnet.Net()\n"}, "Old"),
        ({"net.py": NET, "train.py": "from net import *\nglobals()[kind]()\n"}, ""),
        ({"net.py": NET, "train.py": USE + "importlib.import_module(kind)\n"}, ""),
        ({"net.py": NET + "__all__ = ['Old']\n", "train.py": USE}, ""),
        ({"net.py": NET, "train.py": USE, "test_net.py": "from net import Old\nOld()\n"}, "Old"),
        ({"net.py": NET, "train.py": "from net import Net\n"}, ""),
        ({"net.py": NET, "train.py": USE, "setup.py": "", "__init__.py": ""}, ""),
    ],
)
def test_idle_definitions_of_a_module(files: dict[str, str], idle: str, tmp_path: Path) -> None:
    searched = Index(write(tmp_path, files))
    whole = Index(tmp_path)
    whole.build()
    found = [sorted(index.view(tmp_path / "net.py").idle) for index in (searched, whole)]
    assert found == [idle.split()] * 2


def test_a_copy_that_nothing_imports_is_idle(tmp_path: Path) -> None:
    files = {"net.py": NET, "train.py": USE, "train_old.py": COPY}
    assert Index(write(tmp_path, files)).view(tmp_path / "train_old.py").idle == {"Train"}
