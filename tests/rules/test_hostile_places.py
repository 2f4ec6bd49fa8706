"""Fixes between other code: beside semicolons and backslashes, under headers, without imports.

`PYTHONPATH=tests python -m fuzz place` tries every example at places of every kind.
"""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from places import PLACES

from torchlint.config import Settings
from torchlint.engine import FixResult, fix_source
from torchlint.engine.parsing import compile_problem
from torchlint.registry import load_registry
from torchlint.source import Source
from torchlint.testing import examples_of

REGISTRY = load_registry()
ALL = Settings(select=("ALL",), unsafe_fixes=True)
RULES = REGISTRY.select(ALL)
EXAMPLES = [
    example.before
    for head in RULES
    for example in examples_of(head.load())
    if not example.valid and example.before != example.after
]
FEW = 6
"""How many examples are fixed at each place."""


def _fixed(text: str) -> FixResult:
    return fix_source(Source("train.py", text), RULES, ALL)


@pytest.mark.parametrize("place", PLACES)
def test_what_is_fixed_compiles_and_stays(place: str) -> None:
    for example in Random(place).sample(EXAMPLES, FEW):
        text = example
        with contextlib.suppress(SyntaxError, ValueError):
            text = PLACES[place](example)
        if compile_problem(Source("train.py", text)) is not None:
            continue
        result = _fixed(text)
        assert result.is_whole, text
        assert compile_problem(result.after) is None, result.after.text
        assert not _fixed(result.after.text).changed, result.after.text


EVALUATION = """\
def test(model, test_loader):
    model.eval()
    correct = 0
    for x, y in test_loader:
        correct += (torch.argmax(model(x), 1) == y).sum().item()
    return correct
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            f"{EVALUATION}\n\nimport torch\n",
            f"import torch\n@torch.inference_mode()\n{EVALUATION}",
        ),
        (f"@mine\n# why\n{EVALUATION}\n\nimport torch\n", "import torch\n@mine\n# why\n"),
        (
            "import torch\nfrom torch.autograd import Variable\nx = torch.zeros(2)\n"
            "x = Variable(x);\nprint(x)\n",
            "import torch\nx = torch.zeros(2)\nprint(x)\n",
        ),
        (
            "import torch\nfrom torch.autograd import Variable\nx = torch.zeros(2)\n"
            "if x:\n    x = Variable(x) ;  # why\nprint(x)\n",
            "import torch\nx = torch.zeros(2)\nif x:\n    pass  # why\nprint(x)\n",
        ),
        (
            "import torch\nfrom torch.autograd import Variable\nx = torch.zeros(2)\n\\\n"
            "x = Variable(x) \\\n\nprint(x)\n",
            "import torch\nx = torch.zeros(2)\nprint(x)\n",
        ),
    ],
    ids=["no imports above", "a decorator", "a semicolon", "all of a block", "backslashes"],
)
def test_how_fixes_meet_what_is_around(before: str, after: str) -> None:
    result = _fixed(before)
    assert result.is_whole
    assert result.after.text.startswith(after)
