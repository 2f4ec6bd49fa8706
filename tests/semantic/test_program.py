"""The shape of a training program: start, epoch loop, loader, sums."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlint.semantic.script import Script
from torchlint.source import Source

SCRIPT = """\
import torch
from torch.utils.data import DataLoader

def make(data):
    return DataLoader(data, 32), DataLoader(data, 64)

def train(net, loader, optimizer, epoch):
    total, hits, seen, steps, odd = 0.0, 0, 0, 0, 0.0
    for x, y in loader:
        out = net(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        hits += (out.argmax(1) == y).sum().item()
        seen += len(y)
        steps += 1
    return total / steps, hits / seen, odd

def main():
    first, second = make(data)
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(3):
        train(net, second, optimizer, epoch)

def twice():
    pass

if __name__ == "__main__":
    main()
    twice()
    twice()
"""


@pytest.fixture
def script() -> Script:
    return Script.parse(Source("train.py", SCRIPT))


def _function(script: Script, name: str) -> cst.FunctionDef:
    return next(each for each in script.tree.all(cst.FunctionDef) if each.name.value == name)


def test_the_start_is_the_line_of_the_main_guard_that_runs_the_loop(script: Script) -> None:
    loop = script.program.training_loops()[0]
    entry = script.program.entry(loop.node)
    assert entry is not None
    assert script.code(entry.statement) == "main()"
    assert isinstance(entry.block, cst.IndentedBlock)


def test_what_two_lines_run_has_no_one_start(script: Script) -> None:
    assert script.program.entry(_function(script, "twice").body) is None


def test_what_nobody_calls_has_no_start() -> None:
    script = Script.parse(Source("train.py", "def main():\n    pass\n"))
    assert script.program.entry(_function(script, "main").body) is None


def test_code_at_module_level_starts_with_the_module() -> None:
    script = Script.parse(Source("train.py", "x = 1\n"))
    entry = script.program.entry(script.tree.all(cst.Integer)[0])
    assert entry is not None
    assert isinstance(entry.block, cst.Module)


def test_the_epoch_loop_is_found_in_the_caller(script: Script) -> None:
    loop = script.program.training_loops()[0]
    epochs = script.program.epoch_loop(loop)
    assert epochs is not None
    assert script.code(epochs.node).startswith("for epoch in range(3)")


def test_a_loader_is_followed_through_a_parameter_and_a_pair(script: Script) -> None:
    loop = script.program.training_loops()[0]
    assert loop.loader is not None
    loader = script.program.loader_call(loop.loader)
    assert loader is not None
    assert script.code(loader) == "DataLoader(data, 64)"
    assert script.program.draws(loader) == [loop]
