"""The names of torch that are not public: all in one module, and none of them needed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from harness.scripts import PLAIN, run, write

from torchlint.harness import child
from torchlint.harness.child import privates
from torchlint.harness.plan import Mode
from torchlint.harness.runs import process

MODULES = sorted(Path(child.__file__).parent.glob("*.py"))
PRIVATE = re.compile(
    r"from torch[\w.]* import .*\b_[A-Za-z]|(?<!\")\btorch(?:\.\w+)*\._[A-Za-z]|\._get_default_|"
    r"(?<!self)\._(?:parameters|modules|buffers)\b|_non_persistent"
)
HIDDEN = """
import sys
import torch
import torch.utils._python_dispatch as modes
import torch.utils.data.dataloader as loaders
hidden = [(loaders, "_BaseDataLoaderIter"), (modes, "TorchDispatchMode")]
kept = [(home, name, home.__dict__.pop(name)) for home, name in hidden]
del torch._C._current_graph_task_id
import torchlint.harness.child.privates
for home, name, value in kept:
    setattr(home, name, value)  # torch itself needs them
from torchlint.harness.child.run import main
main(sys.argv[1])
"""
"""A run under a torch that lacks names."""


def test_this_torch_has_every_name() -> None:
    assert privates.missing() == ()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_other_module_uses_one(module: Path) -> None:
    used = PRIVATE.findall(module.read_text(encoding="utf-8"))
    assert bool(used) is (module.stem == "privates"), used


@pytest.mark.parametrize("mode", ["numbers", "time", "syncs", "pace"])
def test_a_torch_without_them_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", HIDDEN))
    trace = run(write(tmp_path, PLAIN), mode)
    assert (trace.ending, trace.taken) == ("full", 8) or mode == "pace"
    assert trace.failure is None
    assert len(trace.losses) == (8 if mode == "numbers" else 0)


def test_no_iterator_and_no_mode_see_anything() -> None:
    with pytest.raises(StopIteration):
        next(privates._NoIterator(None))
    with privates._NoMode():
        assert privates._itself((1, 2)) == [(1, 2)]
