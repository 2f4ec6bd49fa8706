"""What comes out the same in every pass of a loop."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from torchlint.semantic.script import Script
from torchlint.semantic.training.invariance import Invariance
from torchlint.source import Source

HEAD = """
import random
import torch
from torch.utils.data import DataLoader, Dataset, Subset, random_split
from torchvision import datasets
from mine import args, data, folds, make
"""


def _invariance(passes: str, before: str = "") -> Invariance:
    """Judge the argument of `ask(...)` in the passes of the one loop over epochs."""
    body = textwrap.indent(textwrap.dedent(passes), "    ")
    text = f"{HEAD}{textwrap.dedent(before)}\nfor epoch in range(9):\n{body}"
    script = Script.parse(Source("example.py", text))
    (call,) = [c for c in script.tree.all(cst.Call) if script.code(c.func) == "ask"]
    loop = next(loop for loop in script.loops.all() if isinstance(loop.node, cst.For))
    runs: list[cst.Call] = []
    function = script.scopes.function(call)
    while function is not None:
        (run,) = script.functions.callers(function)
        runs.insert(0, run)
        function = script.scopes.function(run)
    return script.loops.invariances.of(call.args[0].value, loop.node, runs)


@pytest.mark.parametrize(
    ("passes", "found"),
    [
        ("ask(data)", Invariance.INVARIANT),
        ("ask(Subset(data, range(len(data))))", Invariance.INVARIANT),
        ("ask(args.size)", Invariance.INVARIANT),
        ("ask(epoch)", Invariance.CHANGING),
        ("ask(folds[epoch])", Invariance.CHANGING),
        ("ask(random.random())", Invariance.CHANGING),
        ("ask(random_split(data, [1, 2]))", Invariance.CHANGING),
        ("ask(torch.randperm(9))", Invariance.CHANGING),
        ("ask(make(data))", Invariance.CHANGING),
        ("rows = datasets.MNIST('data')\nask(rows)", Invariance.REMADE),
        ("rows = data\nif epoch:\n    rows = folds\nask(rows)", Invariance.CHANGING),
        ("ask(args.size)\nargs.size += 1", Invariance.CHANGING),
        ("data.append(1)\nask(data)", Invariance.CHANGING),
        ("data[epoch] = 1\nask(data)", Invariance.CHANGING),
        ("ask([row for row in data])", Invariance.INVARIANT),
    ],
)
def test_in_the_loop(passes: str, found: Invariance) -> None:
    assert _invariance(passes) is found


@pytest.mark.parametrize(
    ("before", "passes", "found"),
    [
        ("def run(x):\n    ask(x)\n", "run(data)", Invariance.INVARIANT),
        ("def run(x):\n    ask(x)\n", "run(folds[epoch])", Invariance.CHANGING),
        ("def run(x, n=3):\n    ask(n)\n", "run(epoch)", Invariance.INVARIANT),
        ("def run(x):\n    ask(x)\ndef pass_on(y):\n    run(y)\n", "pass_on(epoch)",
         Invariance.CHANGING),
        ("size = 1\ndef run():\n    global size\n    ask(size)\n    size += 1\n", "run()",
         Invariance.CHANGING),
    ],
)  # fmt: skip
def test_in_a_function_that_the_passes_run(before: str, passes: str, found: Invariance) -> None:
    assert _invariance(passes, before) is found


@pytest.mark.parametrize(
    ("init", "found"),
    [
        ("self.rows = list(rows)", Invariance.REMADE),
        ("self.rows = [random.choice(rows)]", Invariance.CHANGING),
        ("self.rows = make(rows)", Invariance.CHANGING),
        ("self.rows = rows.sample(3)", Invariance.CHANGING),
    ],
)
def test_an_object_of_a_class_in_sight(init: str, found: Invariance) -> None:
    before = f"class Rows(Dataset):\n    def __init__(self, rows):\n        {init}\n"
    assert _invariance("ask(Rows(data))", before) is found
