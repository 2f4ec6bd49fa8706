"""Callers come from programs, callees from anywhere, and both fit into a view."""

from __future__ import annotations

from pathlib import Path

from projects import write

from torchlint.program.index import Index
from torchlint.program.selection import MOST_CHARACTERS
from torchlint.semantic.view import ALONE, Symbol, View

STEP = "def step(x):\n    x.backward()\n"
DICE = "def dice(x):\n    return x.item()\n"
GUARD = "if __name__ == '__main__':\n    main()\n"


def views(root: Path, files: dict[str, str]) -> dict[str, View]:
    """Return the views of the files of a project."""
    index = Index(write(root, files))
    return {name: index.view(root / name) for name in files}


def linked(view: View) -> dict[str, list[int]]:
    """Return the rows of the excerpts of each module."""
    return {each.path: [excerpt.row for excerpt in each.excerpts] for each in view.modules}


def test_callers_come_from_programs_only(tmp_path: Path) -> None:
    use = "from lib import step\n\ndef main():\n    step(1)\n\n"
    found = views(
        tmp_path,
        {
            "lib.py": STEP,
            "train.py": use + GUARD,
            "unused.py": use,
            "called.py": use,
            "runs.py": "import called\n\ncalled.main()\n",
            "tests/test_lib.py": use + GUARD,
            "test_train.py": use + GUARD,
            "benchmarks/speed.py": use + GUARD,
            "docs/conf.py": use + GUARD,
        },
    )
    assert linked(found["lib.py"]) == {
        "called.py": [1, 3],
        "runs.py": [1, 3],
        "train.py": [1, 3, 6],
        "unused.py": [1, 3],
    }
    assert linked(found["tests/test_lib.py"]) == {"lib.py": [1]}


def test_a_module_found_by_its_name_is_linked_to_what_finds_it(tmp_path: Path) -> None:
    finds = "import importlib\n\ndef main(name):\n    importlib.import_module(name).Net()\n\n"
    net = "from torch import nn\n\nclass Net(nn.Module):\n    pass\n"
    files = {"models/lib.py": net, "models/used.py": net, "step.py": STEP}
    files["train.py"] = f"import step\n{finds}{GUARD}"
    found = views(tmp_path, {**files, "other.py": "from models.used import Net\n"})
    assert linked(found["models/lib.py"]) == {"train.py": [2, 4, 7]}
    assert linked(found["models/used.py"]) == {}


def test_nothing_is_linked_to_unit_tests(tmp_path: Path) -> None:
    use = "from lib import step\n\ndef %s():\n    step(1)\n\n"
    found = views(
        tmp_path,
        {"lib.py": STEP, "tests/test_lib.py": use % "test_step", "test_net.py": use % "main"},
    )
    assert linked(found["tests/test_lib.py"]) == {}
    assert linked(found["test_net.py"]) == {"lib.py": [1]}


def test_a_caller_brings_the_star_import_through_which_it_calls(tmp_path: Path) -> None:
    use = "import os\nfrom lib import *\n\ndef main():\n    step(1)\n\n"
    found = views(tmp_path, {"lib.py": STEP, "train.py": use + GUARD})
    assert linked(found["lib.py"]) == {"train.py": [2, 4, 7]}


def test_a_program_begins_at_a_guard_at_code_at_a_script_or_in_a_notebook(tmp_path: Path) -> None:
    use = "from lib import step\n\ndef main():\n    step(1)\n"
    cell = '{"cells": [{"cell_type": "code", "source": ["import other\\n", "other.main()"]}]}'
    found = views(
        tmp_path,
        {
            "lib.py": STEP,
            "script.py": use,
            "pkg/__init__.py": "",
            "pkg/__main__.py": use,
            "pyproject.toml": "[project.scripts]\ntrain = 'script:main'\n",
            "other.py": use,
            "look.ipynb": cell,
            "alone.py": use + "# DataLoader\n",
        },
    )
    assert list(linked(found["lib.py"])) == [
        "alone.py",
        "look.ipynb",
        "other.py",
        "pkg/__main__.py",
        "script.py",
    ]


def test_nothing_is_linked_where_nothing_trains(tmp_path: Path) -> None:
    files = {"a.py": "from b import f\nf(1)\n", "b.py": "def f(x): pass\n"}
    found = views(tmp_path, files)
    assert (linked(found["a.py"]), found["b.py"]) == ({}, ALONE)
    files["b.py"] += "def g(x): x.backward()\n"
    found = views(tmp_path, files)
    assert linked(found["a.py"]) == {}
    assert linked(found["b.py"]) == {"a.py": [1, 2]}


def test_a_symbol_with_many_users_has_no_callers(tmp_path: Path) -> None:
    use = "from lib import step\nstep(1)\n"
    few = {f"use{number:02}.py": use for number in range(12)}
    found = views(tmp_path / "few", {"lib.py": STEP, **few})
    assert len(found["lib.py"].modules) == 12
    assert not found["lib.py"].called_unseen
    found = views(tmp_path / "many", {"lib.py": STEP, **few, "use12.py": use})
    assert found["lib.py"].modules == ()
    assert found["lib.py"].called_unseen == {Symbol("lib.py", "step")}
    assert linked(found["use12.py"]) == {"lib.py": [1]}


def test_of_many_users_those_that_train_compiled_code_are_linked(tmp_path: Path) -> None:
    files = {
        f"use{i}.py": f"import lib\n\ndef main():\n    lib.step({i})\n\n{GUARD}" for i in range(13)
    }
    text = "import torch\nfrom lib import step\n\ndef fit(x):\n    torch.compile(step)(x)"
    trains = f"{text}.backward()\n\nfit(1)\n"
    generates = f"{text}\n\nfit(1)\n"
    found = views(tmp_path, {**files, "lib.py": STEP, "fit.py": trains, "generate.py": generates})
    assert linked(found["lib.py"]) == {"fit.py": [1, 2, 4, 7]}


def test_callers_are_followed_two_steps_up_and_callees_two_steps_down(tmp_path: Path) -> None:
    files = {
        "one.py": "from two import f\ndef f1(): f()\nf1()\n",
        "two.py": "from three import f as g\ndef f(): g()\n",
        "three.py": "from four import f as g\ndef f(): g()\n",
        "four.py": "from five import f as g\ndef f(): g().backward()\n",
        "five.py": "from six import f as g\ndef f(): g()\n",
        "six.py": "from seven import f as g\ndef f(): g()\n",
        "seven.py": "def f(): pass\n",
    }
    found = views(tmp_path, files)
    assert list(linked(found["four.py"])) == ["five.py", "six.py", "three.py", "two.py"]
    assert found["four.py"].called_unseen == {Symbol("two.py", "f")}


def test_what_top_level_code_makes_of_a_function_is_followed_in_its_module(tmp_path: Path) -> None:
    train = "from net import Net\nnet = Net()\nfor x in DataLoader(1):\n    net(x).backward()\n"
    other = "from train import net\n\nnet.eval()\n"
    found = views(tmp_path, {"net.py": "class Net: pass\n", "train.py": train, "other.py": other})
    assert linked(found["net.py"]) == {"train.py": [1, 2, 3]}


def test_a_choice_that_runs_what_it_imports_is_a_caller(tmp_path: Path) -> None:
    main = "import sys\nif sys.argv:\n    from lib import step\n    step(1)\n"
    assert linked(views(tmp_path, {"lib.py": STEP, "main.py": main})["lib.py"]) == {
        "main.py": [1, 2]
    }


def test_callers_are_found_through_a_table_of_another_module(tmp_path: Path) -> None:
    train = "from losses import LOSSES\ndef run(x):\n    LOSSES['a'](x).backward()\nrun(1)\n"
    table = "from dice import dice\nLOSSES = {'a': dice}\nlimit = dice(1)\n"
    found = views(tmp_path, {"dice.py": DICE, "losses.py": table, "train.py": train})
    assert linked(found["dice.py"]) == {"losses.py": [1, 2, 3], "train.py": [1, 2]}


def test_a_long_caller_that_trains_is_linked_beside_the_others(tmp_path: Path) -> None:
    body = "    loss.backward()\n" + "    x = 1\n" * 2400
    start = f"from lib import step\ndef main():\n    step(DataLoader)\n{body}"
    lib = "def step(loader): pass\n"
    found = views(tmp_path, {"lib.py": lib, "a.py": start, "b.py": start})
    assert len(body) > MOST_CHARACTERS
    assert len(linked(found["lib.py"])) == 1


def test_a_view_has_a_limit_and_what_is_cut_is_told(tmp_path: Path) -> None:
    body = "    x = 1\n" * 500
    names = [f"f{number}" for number in range(6)]
    lib = "".join(f"def {name}():\n{body}" for name in names)
    main = f"from lib import {', '.join([*names, 'big', 'gone'])}\n"
    uses = "".join(f"{name}()\n" for name in [*names, "big", "gone"])
    huge = "def big():\n" + "    x = 1\n" * 1400
    found = views(tmp_path, {"main.py": f"{main}{uses}DataLoader\n", "lib.py": lib + huge})
    view = found["main.py"]
    assert linked(view) == {"lib.py": [1, 502, 1003]}
    assert sum(len(each.text) for each in view.modules[0].excerpts) <= MOST_CHARACTERS
    assert view.unseen == {"lib.f3", "lib.f4", "lib.f5", "lib.big", "lib.gone"}
    assert view.names["lib.f5"] == Symbol("lib.py", "f5")
    assert "lib.gone" not in view.names


def test_users_of_what_handles_tensors_come_first(tmp_path: Path) -> None:
    body = "    x = net.eval()\n" * 400
    users = {
        f"a{number}.py": f"from lib import NAME\ndef f(net):\n    NAME\n{body}f(DataLoader)\n"
        for number in range(3)
    }
    lib = "NAME = 'x'\ndef read(x):\n    return x.item()\n"
    train = "from lib import read\nfor batch in loader:\n    batch.backward(read(1))\n"
    found = views(tmp_path, {"lib.py": lib, "train.py": train, **users})
    assert linked(found["lib.py"]) == {
        "a0.py": [1, 2, 404],
        "a1.py": [1, 2, 404],
        "a2.py": [404],
        "train.py": [1, 2],
    }


def test_what_the_file_uses_has_room_however_many_callers_there_are(tmp_path: Path) -> None:
    body = "    x.backward()\n" * 225
    start = f"from lib import step\ndef main(x):\n    step(x)\n{body}main(DataLoader)\n"
    meter = "class Meter:\n    def update(self, x):\n" + "        self.sum += x\n" * 80
    lib = "from meter import Meter\ndef step(x):\n    meter = Meter()\n    meter.update(x.item())\n"
    files = {"meter.py": meter, "lib.py": lib, **{f"start{n}.py": start for n in range(5)}}
    view = views(tmp_path, files)["lib.py"]
    assert linked(view)["meter.py"] == [1]
    assert len(linked(view)) > 3


def test_a_class_that_uses_the_file_takes_little_room_unless_it_has_steps(tmp_path: Path) -> None:
    body = "        read(1)\n" + "        self.net.eval()\n" * 200
    head = "from lib import read\nclass"
    files = {
        "lib.py": "def read(x):\n    return x.item()\n",
        "net.py": f"{head} Net:\n    def run(self):\n{body}",
        "task.py": f"{head} Task:\n    def training_step(self):\n{body}",
        "main.py": "import net, task\ntask.Task(DataLoader)\n",
    }
    found = views(tmp_path, files)
    assert linked(found["lib.py"]) == {"main.py": [1, 2], "task.py": [1, 2]}


def test_a_class_comes_with_its_bases_and_heirs_even_if_they_are_long(tmp_path: Path) -> None:
    body = "        self.net.eval()\n" * 440
    heir = "from base import Base\nclass Heir(Base):\n    def step(self):\n        x.item()\n"
    others = "".join(f"def f{number}(x):\n    x.backward()\n{body}" for number in range(2))
    files = {
        "base.py": f"class Base:\n    def run(self):\n{body}",
        "heir.py": f"{heir}{body}",
        "main.py": "import heir\nheir.Heir(DataLoader)\n",
        "use.py": f"from heir import Heir\n{others}Heir\n",
    }
    found = views(tmp_path, files)
    assert linked(found["heir.py"]) == {"base.py": [1], "main.py": [1, 2]}
    assert linked(found["base.py"])["heir.py"] == [1, 2]


def test_docstrings_and_comments_are_left_blank(tmp_path: Path) -> None:
    lib = (
        'def step(x):\n    """Step.\n\n    Back.\n    """\n    # back\n    x.backward()  # now\n\n'
        'def none():\n    """Only this."""\n'
    )
    found = views(tmp_path, {"main.py": "from lib import *\nstep(none())\n", "lib.py": lib})
    assert [each.text for each in found["main.py"].modules[0].excerpts] == [
        "def step(x):\n\n\n\n\n\n    x.backward()  # now\n",
        'def none():\n    """Only this."""\n',
    ]


def test_an_evaluation_is_enough_to_link(tmp_path: Path) -> None:
    main = "import torch\nfrom lib import f\nwith torch.no_grad():\n    f(1)\n"
    other = "import torch\nloader = torch.utils.data.DataLoader(1)\nimport main\n"
    found = views(tmp_path, {"main.py": main, "lib.py": "def f(x): pass\n", "other.py": other})
    assert linked(found["lib.py"]) == {"main.py": [1, 2, 3]}
    assert linked(found["main.py"]) == {"lib.py": [1]}


def test_the_parts_of_the_blocks_of_a_network_are_linked(tmp_path: Path) -> None:
    files = {
        "main.py": "import torch\nfrom net import Net\nwith torch.no_grad():\n    Net()(1)\n",
        "net.py": "from blocks import Block\nclass Net:\n    def make(self): Block()\n",
        "blocks.py": "from parts import Part, size\nclass Block:\n    at = Part(), size()\n",
        "parts.py": "class Part: pass\ndef size(): return 1\n",
    }
    found = views(tmp_path, files)
    assert linked(found["main.py"]) == {
        "blocks.py": [1, 2],
        "net.py": [1, 2],
        "parts.py": [1],
    }


def test_the_code_of_a_start_is_not_lent_to_other_programs(tmp_path: Path) -> None:
    train = (
        "def loss(x):\n    return x * scale\n\n"
        "for scale in range(3):\n    loss(1).backward()\n\n"
        "if __name__ == '__main__':\n    scale = 3\n"
    )
    evaluate = "from train import loss\n\nloss(DataLoader)\n"
    found = views(tmp_path, {"train.py": train, "evaluate.py": evaluate})
    assert linked(found["evaluate.py"]) == {"train.py": [1]}
    assert linked(found["train.py"]) == {"evaluate.py": [1, 3]}


def test_a_parser_comes_with_the_lines_that_fill_it(tmp_path: Path) -> None:
    options = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n')\nprint(1)\n"
    use = "from options import p\n\ndef main():\n    n = p.parse_args().n\n    n.backward()\n"
    found = views(tmp_path, {"options.py": options, "train.py": use + GUARD})
    assert linked(found["train.py"]) == {"options.py": [1, 2, 3]}


def test_what_a_program_sets_for_its_process_is_linked(tmp_path: Path) -> None:
    files = {
        "net.py": "import torch\nclass Net: pass\n",
        "settings.py": "import torch\ntorch.backends.cudnn.benchmark = True\nSIZE = 3\n",
        "train.py": "import settings, torch\nfrom net import Net\ntorch.manual_seed(1)\n"
        "def main():\n    Net()(DataLoader).backward()\nmain()\n",
        "other.py": "import torch\ntorch.manual_seed(2)\n",
    }
    found = views(tmp_path, files)
    assert linked(found["net.py"]) == {"settings.py": [1, 2], "train.py": [1, 2, 3, 4, 6]}
    assert linked(found["train.py"]) == {"net.py": [2], "settings.py": [1, 2]}


def test_what_the_project_lacks_is_unseen_and_other_packages_are_not(tmp_path: Path) -> None:
    main = (
        "import numpy as np\nfrom . import gone\nfrom lib import made_at_run_time\n"
        "from datasets import load_dataset\nimport lib\n"
        "DataLoader(np.x, gone.f, made_at_run_time, load_dataset, lib.x.y)\n"
    )
    files = {"main.py": main, "lib.py": "", "datasets/mnist.py": ""}
    view = views(tmp_path, files)["main.py"]
    assert view.unseen == {".gone", "lib.made_at_run_time", "lib.x"}


def test_own_functions_that_escape_may_be_called_unseen(tmp_path: Path) -> None:
    files = {
        "pkg/__init__.py": "from .a import f\nfrom .b import *\n",
        "pkg/a.py": "def f(x): x.backward()\ndef g(): pass\n",
        "pkg/b.py": "def f(x): x.backward()\ndef g(): pass\n",
        "pkg/c.py": "__all__ = ['f']\ndef f(x): x.backward()\ndef g(): pass\n",
    }
    found = views(tmp_path, files)
    assert {name for _, name in found["pkg/a.py"].called_unseen} == {"f"}
    assert {name for _, name in found["pkg/b.py"].called_unseen} == {"f", "g"}
    assert {name for _, name in found["pkg/c.py"].called_unseen} == {"f"}


def test_a_notebook_is_a_module_that_nothing_imports(tmp_path: Path) -> None:
    cells = [
        '{"cell_type": "code", "source": ["from lib import step\\n"]}',
        '{"cell_type": "markdown", "source": ["Text"]}',
        '{"cell_type": "code", "source": ["%matplotlib inline\\n", "step(1)"]}',
    ]
    notebook = f'{{"cells": [{", ".join(cells)}]}}'
    found = views(tmp_path, {"lib.py": STEP, "run.ipynb": notebook})
    assert [each.text for each in found["lib.py"].modules[0].excerpts] == [
        "from lib import step\n",
        "step(1)\n",
    ]
    assert linked(found["run.ipynb"]) == {"lib.py": [1]}


def test_a_project_that_is_too_large_is_not_linked(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "from lib import step\nstep(1)\n", "lib.py": STEP})
    assert Index(tmp_path).view(tmp_path / "train.py").modules
    folder = tmp_path / "copies"
    folder.mkdir()
    for number in range(5_000):
        (folder / f"a{number}.py").touch()
    index = Index(tmp_path)
    assert index.left_out == "each file is analyzed alone: the project has more than 5,000 files"
    assert index.view(tmp_path / "train.py") == ALONE
    assert index.files == ()


def test_hidden_ignored_and_installed_files_are_no_modules(tmp_path: Path) -> None:
    files = {
        ".gitignore": "out/\n",
        "a.py": "",
        "out/b.py": "",
        ".hidden/c.py": "",
        "env/pyvenv.cfg": "",
        "env/lib/d.py": "",
        "node_modules/e.py": "",
        "sub/.gitignore": "deep\n",
        "sub/deep/f.py": "",
        "sub/g.py": "",
        "torch/__init__.py": "",
        "lib/torch/__init__.py": "",
    }
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    index = Index(write(tmp_path, files))
    names = [Path(each).relative_to(tmp_path).as_posix() for each in index.files]
    assert names == ["a.py", "lib/torch/__init__.py", "sub/g.py"]
    folders = [Path(each).relative_to(tmp_path).as_posix() for each in index.folders]
    assert folders == [".", "lib", "lib/torch", "sub"]
