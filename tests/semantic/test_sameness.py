"""What comes out the same in every pass of a loop."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from torchlint.semantic.sameness import Sameness
from torchlint.semantic.script import Script
from torchlint.source import Source

HEAD = """
import random
import torch
from torch.utils.data import DataLoader, Dataset, Subset, random_split
from torchvision import datasets
from mine import args, data, folds, make
"""


def _sameness(passes: str, before: str = "") -> Sameness:
    """Judge the argument of `ask(...)` in the passes of the one loop over epochs."""
    body = textwrap.indent(textwrap.dedent(passes), "    ")
    text = f"{HEAD}{textwrap.dedent(before)}\nfor epoch in range(9):\n{body}"
    script = Script.parse(Source("example.py", text))
    (call,) = [c for c in script.all(cst.Call) if script.code(c.func) == "ask"]
    loop = next(loop for loop in script.loops() if isinstance(loop.node, cst.For))
    runs: list[cst.Call] = []
    function = script.function(call)
    while function is not None:
        (run,) = script.functions.callers(function)
        runs.insert(0, run)
        function = script.function(run)
    return script.sameness(call.args[0].value, loop.node, runs)


@pytest.mark.parametrize(
    ("passes", "found"),
    [
        ("ask(data)", Sameness.SAME),
        ("ask(Subset(data, range(len(data))))", Sameness.SAME),
        ("ask(args.size)", Sameness.SAME),
        ("ask(epoch)", Sameness.CHANGING),
        ("ask(folds[epoch])", Sameness.CHANGING),
        ("ask(random.random())", Sameness.CHANGING),
        ("ask(random_split(data, [1, 2]))", Sameness.CHANGING),
        ("ask(torch.randperm(9))", Sameness.CHANGING),
        ("ask(make(data))", Sameness.CHANGING),
        ("rows = datasets.MNIST('data')\nask(rows)", Sameness.REMADE),
        ("rows = data\nif epoch:\n    rows = folds\nask(rows)", Sameness.CHANGING),
        ("ask(args.size)\nargs.size += 1", Sameness.CHANGING),
        ("data.append(1)\nask(data)", Sameness.CHANGING),
        ("data[epoch] = 1\nask(data)", Sameness.CHANGING),
        ("ask([row for row in data])", Sameness.SAME),
    ],
)
def test_in_the_loop(passes: str, found: Sameness) -> None:
    assert _sameness(passes) is found


@pytest.mark.parametrize(
    ("before", "passes", "found"),
    [
        ("def run(x):\n    ask(x)\n", "run(data)", Sameness.SAME),
        ("def run(x):\n    ask(x)\n", "run(folds[epoch])", Sameness.CHANGING),
        ("def run(x, n=3):\n    ask(n)\n", "run(epoch)", Sameness.SAME),
        ("def run(x):\n    ask(x)\ndef pass_on(y):\n    run(y)\n", "pass_on(epoch)",
         Sameness.CHANGING),
        ("size = 1\ndef run():\n    global size\n    ask(size)\n    size += 1\n", "run()",
         Sameness.CHANGING),
    ],
)  # fmt: skip
def test_in_a_function_that_the_passes_run(before: str, passes: str, found: Sameness) -> None:
    assert _sameness(passes, before) is found


@pytest.mark.parametrize(
    ("init", "found"),
    [
        ("self.rows = list(rows)", Sameness.REMADE),
        ("self.rows = [random.choice(rows)]", Sameness.CHANGING),
        ("self.rows = make(rows)", Sameness.CHANGING),
        ("self.rows = rows.sample(3)", Sameness.CHANGING),
    ],
)
def test_an_object_of_a_class_in_sight(init: str, found: Sameness) -> None:
    before = f"class Rows(Dataset):\n    def __init__(self, rows):\n        {init}\n"
    assert _sameness("ask(Rows(data))", before) is found
