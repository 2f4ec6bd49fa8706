"""Imports lead to the functions that Python finds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from projects import python_finds, write

from torchlint.program.imports import Imports, Module
from torchlint.program.index import Index
from torchlint.semantic.view import ALONE, Symbol

F: Final = "def f(loader):\n    return 'DataLoader'\n"


class Layout(NamedTuple):
    """A project whose main module uses functions: qualified names and the expressions for them."""

    main: str
    files: dict[str, str]
    names: dict[str, str]
    folders: tuple[str, ...] = (".",)


LAYOUTS: Final = {
    "plain": Layout(
        "main.py", {"main.py": "from data import f\nf(1)", "data.py": F}, {"data.f": "f"}
    ),
    "alias": Layout(
        "main.py", {"main.py": "from data import f as g\ng(1)", "data.py": F}, {"data.f": "g"}
    ),
    "relative": Layout(
        "p/main.py",
        {
            "p/__init__.py": "",
            "p/main.py": "from .data import f\nfrom .s.up import g\nf(1), g(1)",
            "p/data.py": F,
            "p/s/__init__.py": "",
            "p/s/up.py": "from ..data import f as g",
        },
        {".data.f": "f", ".s.up.g": "g"},
    ),
    "re-export": Layout(
        "main.py",
        {
            "main.py": "from p import f\nf(1)",
            "p/__init__.py": "from .q import f",
            "p/q/__init__.py": "from p.q.data import f",
            "p/q/data.py": F,
        },
        {"p.f": "f"},
    ),
    "module": Layout(
        "main.py", {"main.py": "import data\ndata.f(1)", "data.py": F}, {"data.f": "data.f"}
    ),
    "package": Layout(
        "main.py",
        {"main.py": "import p\np.f(1)", "p/__init__.py": "from .data import f", "p/data.py": F},
        {"p.f": "p.f"},
    ),
    "submodule": Layout(
        "main.py",
        {"main.py": "import p.data\np.data.f(1)", "p/__init__.py": "", "p/data.py": F},
        {"p.data.f": "p.data.f"},
    ),
    "module of a package": Layout(
        "main.py",
        {"main.py": "from p import data\ndata.f(1)", "p/__init__.py": "", "p/data.py": F},
        {"p.data.f": "data.f"},
    ),
    "module by a dot": Layout(
        "p/main.py",
        {"p/main.py": "from . import data\ndata.f(1)", "p/__init__.py": "", "p/data.py": F},
        {".data.f": "data.f"},
    ),
    "renamed submodule": Layout(
        "main.py",
        {"main.py": "import p.data as d\nd.f(1)", "p/__init__.py": "", "p/data.py": F},
        {"p.data.f": "d.f"},
    ),
    "src": Layout(
        "main.py",
        {"main.py": "from p.data import f\nf(1)", "src/p/__init__.py": "", "src/p/data.py": F},
        {"p.data.f": "f"},
        (".", "src"),
    ),
    "namespace": Layout(
        "main.py", {"main.py": "from p.data import f\nf(1)", "p/data.py": F}, {"p.data.f": "f"}
    ),
    "package before module": Layout(
        "main.py",
        {"main.py": "from p import f\nf(1)", "p/__init__.py": F, "p.py": F},
        {"p.f": "f"},
    ),
    "circle": Layout(
        "main.py",
        {
            "main.py": "from a import f\nfrom b import g\nf(1), g()",
            "a.py": "import b\n" + F,
            "b.py": "import a\ndef g():\n    return a.f(1)\n",
        },
        {"a.f": "f", "b.g": "g"},
    ),
    "try": Layout(
        "main.py",
        {
            "main.py": "try:\n    from fast import f\nexcept ImportError:\n"
            "    from slow import f\nf(1)",
            "slow.py": F,
        },
        {"slow.f": "f"},
    ),
    "standard library inside a package": Layout(
        "p/main.py",
        {
            "p/__init__.py": "",
            "p/main.py": "from copy import copy\nfrom p.copy import f\nf(1), copy",
            "p/copy.py": F,
        },
        {"p.copy.f": "f"},
    ),
    "own name": Layout(
        "p/data.py",
        {"p/__init__.py": "", "p/data.py": "from data import f\nf(1)", "data.py": F},
        {"data.f": "f"},
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_name_leads_where_python_finds_it(layout: Layout, tmp_path: Path) -> None:
    write(tmp_path, layout.files)
    view = Index(tmp_path).view(tmp_path / layout.main)
    module = layout.main.removesuffix(".py").replace("/", ".")
    found = python_finds(tmp_path, layout.folders, module, list(layout.names.values()))
    assert [tuple(view.names[name]) for name in layout.names] == found
    assert set(view.names) == set(layout.names)


def test_an_import_inside_a_function_counts(tmp_path: Path) -> None:
    main = "def main():\n    from data import f\n    import tools.all\n    tools.all.g(f(1))\n"
    tools = {"tools/__init__.py": "", "tools/all.py": "def g(x):\n    return x\n"}
    write(tmp_path, {"main.py": main, "data.py": F, **tools})
    names = Index(tmp_path).view(tmp_path / "main.py").names
    assert names == {"data.f": Symbol("data.py", "f"), "tools.all.g": Symbol("tools/all.py", "g")}


def test_a_star_import_binds_public_names(tmp_path: Path) -> None:
    files = {
        "main.py": "from p import *\nfrom q import *\nDataLoader = f, g, k\nh = lambda: _h",
        "p/__init__.py": "from .data import *\n",
        "p/data.py": F + "def g(): pass\ndef _h(): pass\n",
        "q.py": "__all__ = ['k']\ndef k(): pass\ndef g(): pass\n",
    }
    view = Index(write(tmp_path, files)).view(tmp_path / "main.py")
    found = python_finds(tmp_path, ["."], "main", ["f", "g", "k"])
    assert [tuple(view.stars[name]) for name in ("f", "g", "k")] == found
    assert set(view.stars) == {"f", "g", "k"}


def test_both_modules_of_a_try_are_linked(tmp_path: Path) -> None:
    main = "try:\n    from fast import f\nexcept ImportError:\n    from slow import f\nf(1)"
    write(tmp_path, {"main.py": main, "fast.py": F, "slow.py": F})
    view = Index(tmp_path).view(tmp_path / "main.py")
    assert [each.path for each in view.modules] == ["fast.py", "slow.py"]


def test_a_name_of_another_package_stays_one(tmp_path: Path) -> None:
    files = {
        "main.py": "from compat import DataLoader\nimport compat\nDataLoader(compat.np.x)",
        "compat.py": "import numpy as np\nfrom torch.utils.data import DataLoader\n",
    }
    view = Index(write(tmp_path, files)).view(tmp_path / "main.py")
    assert view.names["compat.DataLoader"] == Symbol("compat.py", "DataLoader")
    (compat,) = view.modules
    assert "".join(each.text for each in compat.excerpts) == files["compat.py"]


def test_torch_is_never_a_folder_of_the_project(tmp_path: Path) -> None:
    files = {
        "main.py": "import torch\nfrom torch import f\nf(torch.g(DataLoader))",
        "torch/__init__.py": F + "def g(): pass\n",
        "torch/nn.py": "from . import f\nf(DataLoader)",
    }
    index = Index(write(tmp_path, files))
    assert index.view(tmp_path / "main.py").names == {}
    assert index.view(tmp_path / "torch" / "nn.py") == ALONE
    assert [Path(each).name for each in index.files] == ["main.py"]


def test_the_nearest_folder_wins_and_namespaces_come_last() -> None:
    imports = Imports(["a/utils.py", "utils.py", "a/b/main.py", "a/data/x.py", "data.py"])
    assert imports.module("a/b/main.py", 0, "utils") == Module("a/utils.py")
    assert imports.module("main.py", 0, "utils") == Module("utils.py")
    assert imports.module("a/b/main.py", 0, "data") == Module("data.py")
    assert imports.module("a/b/main.py", 0, "data.x") == Module("a/data/x.py")
    assert imports.module("a/b/main.py", 1, "utils") is None
    assert imports.module("a/b/main.py", 9, "utils") is None


def test_a_root_that_is_a_package_is_found_by_its_own_name() -> None:
    paths = ["__init__.py", "train.py", "data/sets.py"]
    imports = Imports(paths, name="pkg")
    assert imports.module("train.py", 0, "pkg") == Module("__init__.py")
    assert imports.module("train.py", 0, "pkg.data.sets") == Module("data/sets.py")
    assert imports.module("train.py", 0, "pkg.gone") is None
    assert Imports(paths[1:], name="pkg").module("train.py", 0, "pkg.data.sets") is None


@pytest.mark.parametrize("seed", range(12))
def test_generated_packages_lead_where_python_finds_them(seed: int, tmp_path: Path) -> None:
    layout = _generated(random.Random(seed))
    write(tmp_path, layout.files)
    view = Index(tmp_path).view(tmp_path / layout.main)
    found = python_finds(tmp_path, ["."], "main", list(layout.names.values()))
    assert [tuple(view.names[name]) for name in layout.names] == found


def _generated(chance: random.Random) -> Layout:
    """Return a project of packages that give the functions of their modules on."""
    files: dict[str, str] = {}
    lines: list[str] = ["DataLoader = 1"]
    names: dict[str, str] = {}
    for package in ("data", "tools.deep", "model"):
        folder = package.replace(".", "/")
        for parent in (folder.split("/")[0], folder):
            files.setdefault(f"{parent}/__init__.py", "")
        for module in chance.sample(["one", "two", "data", "tools"], 2):
            function = f"{package[0]}_{module}"
            files[f"{folder}/{module}.py"] = f"def {function}():\n    pass\n"
            path = f"{package}.{module}"
            way = chance.randrange(6)
            if way == 0:
                lines.append(f"from {path} import {function} as {function}_here")
                names[f"{path}.{function}"] = f"{function}_here"
            elif way == 1:
                lines.append(f"import {path}")
                names[f"{path}.{function}"] = f"{path}.{function}"
            elif way == 2:
                lines.append(f"from {package} import {module} as {function}_module")
                names[f"{path}.{function}"] = f"{function}_module.{function}"
            elif way == 3:
                files[f"{folder}/__init__.py"] += f"from .{module} import *\n"
                lines.append(f"from {package} import {function}")
                names[f"{package}.{function}"] = function
            elif way == 4:
                files[f"{folder}/__init__.py"] += (
                    f"from .{module} import {function} as {module}_f\n"
                )
                lines.append(f"import {package} as {function}_package")
                names[f"{package}.{module}_f"] = f"{function}_package.{module}_f"
            else:
                files[f"{folder}/__init__.py"] += f"from . import {module} as {module}_m\n"
                lines.append(f"from {package} import {module}_m as {function}_m")
                names[f"{package}.{module}_m.{function}"] = f"{function}_m.{function}"
    files["main.py"] = "\n".join([*lines, *names.values()]) + "\n"
    return Layout("main.py", files, names)


def test_a_clone_of_a_package_may_have_another_name() -> None:
    paths = ["__init__.py", "data/sets.py", "train.py", "models.py"]
    imports = Imports(paths, name="clone")
    assert imports.module("train.py", 0, "pkg.data.sets") == Module("data/sets.py", False)
    for name in ("pkg", "pkg.other", "os.data.sets", "models.data.sets"):
        assert imports.module("train.py", 0, name) is None
    assert Imports(paths[1:], name="clone").module("train.py", 0, "pkg.data.sets") is None
