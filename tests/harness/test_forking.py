"""Runs that are forked from a process that has imported torch before the script does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from textwrap import dedent

import pytest
from harness.scripts import PLAIN, run, write

from torchlint.harness.plan import ORIGINAL, Plan
from torchlint.harness.runs.runner import Runner
from torchlint.harness.session import ScriptError, Session

SCRIPT = dedent(PLAIN)
IMPORTS, SEED, TRAINING = SCRIPT.partition("torch.manual_seed")


@pytest.mark.parametrize(
    "imports",
    [
        "import torch\nfrom torch import nn\n",
        "import torch.nn as nn\nimport torch\n",
        "from torch.utils.data import DataLoader\nfrom torch import nn\nimport torch\n",
        "import importlib\ntorch = importlib.import_module('torch')\nnn = torch.nn\n",
        "nn = __import__('torch.nn').nn\nimport torch\n",
    ],
)
def test_torch_is_there_from_the_first_import_on(tmp_path: Path, imports: str) -> None:
    text = (
        "import sys\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'torch']\n"
        f"{imports}"
        "assert sys.modules['torch'] is torch and torch.nn is nn\n"
        "assert torch.__spec__.loader is not None and torch.__spec__.submodule_search_locations\n"
        "import torch.utils.data\n"
        f"{SEED}{TRAINING}"
    )
    trace = run(write(tmp_path, text))
    assert trace.failure is None
    assert (trace.ending, trace.environment) == ("full", False)


@pytest.mark.parametrize("name", ["A_VARIABLE", "OMP_NUM_THREADS"])
def test_a_script_that_sets_variables_before_it_imports_torch_starts_alone(
    tmp_path: Path, name: str
) -> None:
    script = write(tmp_path, f"import os\nos.environ[{name!r}] = '3'\n{SCRIPT}")
    assert run(script).environment
    with closing(Runner(Plan(script), None)) as runner:
        runner.serve()
        trace = runner.run(ORIGINAL, "numbers")
        assert trace.taken
        assert trace.environment


def test_a_script_that_sets_variables_after_that_is_forked(tmp_path: Path) -> None:
    text = f"{IMPORTS}import os\nos.environ['A_VARIABLE'] = '1'\n{SEED}{TRAINING}"
    assert not run(write(tmp_path, text)).environment


def test_a_script_without_torch_is_told_so_by_a_fork(tmp_path: Path) -> None:
    script = write(tmp_path, "import sys\nassert 'torch' not in sys.modules\n")
    with Session(Plan(script)) as session, pytest.raises(ScriptError, match="never imports torch"):
        session.survey()


def test_a_library_may_ask_whether_torch_is_there_without_importing_it(tmp_path: Path) -> None:
    text = (
        "import sys\nfrom importlib.util import find_spec\n"
        "assert find_spec('torch').origin.endswith('__init__.py')\n"
        "assert find_spec('torch').submodule_search_locations\n"
        "assert 'torch' not in sys.modules\n"
        f"{SCRIPT}"
    )
    trace = run(write(tmp_path, text))
    assert (trace.ending, trace.failure) == ("full", None)
