"""The view of a file holds what it uses of other modules, and who uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from projects import write

from torchlint.program.folder import project_of
from torchlint.program.index import Index
from torchlint.semantic.view import Symbol

DATA = """
from torch.utils.data import DataLoader

def loaders(n):
    return DataLoader(range(n))
"""
TRAIN = """
import data

def main():
    for x in data.loaders(3):
        x.backward()

main()
"""


def test_callees_and_callers_are_linked(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    (tmp_path / "data.py").write_text(DATA)
    (tmp_path / "train.py").write_text(TRAIN)
    index = Index(tmp_path)
    view = index.view(tmp_path / "train.py")
    (data,) = view.modules
    assert [(each.row, each.text) for each in data.excerpts] == [
        (2, "from torch.utils.data import DataLoader\n"),
        (4, "def loaders(n):\n    return DataLoader(range(n))\n"),
    ]
    assert view.names == {"data.loaders": Symbol("data.py", "loaders")}
    (train,) = index.view(tmp_path / "data.py").modules
    assert [each.row for each in train.excerpts] == [2, 4, 8]
    assert train.names == {"data.loaders": Symbol("data.py", "loaders")}


@pytest.mark.parametrize(
    ("setup", "root"),
    [
        ("from setuptools import setup\n\nsetup()\n", "experiments"),
        ("from skbuild import setup\n\nsetup()\n", "experiments"),
        ("", "experiments"),
        ("def setup(config):\n    return config.criterion\n", "."),
    ],
)
def test_a_setup_script_marks_the_root_of_a_project(tmp_path: Path, setup: str, root: str) -> None:
    write(tmp_path, {"pyproject.toml": "", "experiments/setup.py": setup})
    assert project_of(str(tmp_path / "experiments/train.py")) == str((tmp_path / root).resolve())


def test_a_file_is_on_an_accelerator_where_its_programs_use_one(tmp_path: Path) -> None:
    tools = "def double(x):\n    return x + x\n"
    on_cpu = "import tools\n\ntools.double(3).backward()\n"
    on_gpu = "import devices\nimport tools\n\ntools.double(devices.take(3)).backward()\n"
    devices = "def take(x):\n    return x.cuda()\n"
    files = {"tools.py": tools, "cpu.py": on_cpu, "gpu.py": on_gpu, "devices.py": devices}
    index = Index(write(tmp_path, files))
    found = {name: index.view(tmp_path / name).is_on_accelerator for name in files}
    assert found == {"tools.py": True, "cpu.py": False, "gpu.py": True, "devices.py": False}


def test_a_start_does_not_run_on_the_device_of_another_that_it_takes_a_function_from(
    tmp_path: Path,
) -> None:
    gpu = "def double(x): return x + x\ndef fit(x): double(x.cuda()).backward()\nfit(net)\n"
    on_cpu = "from gpu import double\ndouble(3).backward()\n"
    on_gpu = "from gpu import fit\nfit(3)\n"
    files = {"gpu.py": gpu, "cpu.py": on_cpu, "again.py": on_gpu}
    index = Index(write(tmp_path, files))
    found = {name: index.view(tmp_path / name).is_on_accelerator for name in files}
    assert found == {"gpu.py": False, "cpu.py": False, "again.py": True}


def test_a_module_with_the_name_of_a_build_script_is_no_root(tmp_path: Path) -> None:
    loss = "import torch\n\ndef loss(x):\n    return torch.nn.L1Loss()(x)\n"
    write(tmp_path, {"pyproject.toml": "", "sub/setup.py": loss, "sub/train.py": ""})
    assert project_of(str(tmp_path / "sub/train.py")) == str(tmp_path)
    (tmp_path / "sub/setup.py").write_text("from setuptools import setup\nsetup()\n")
    assert project_of(str(tmp_path / "sub/train.py")) == str(tmp_path / "sub")
