"""Optimizers: who restores their state, and which of them other files get to see."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.semantic.script import Script
from torchlint.source import Source


def _script(text: str) -> Script:
    return Script.parse(Source("train.py", textwrap.dedent(text)))


@pytest.mark.parametrize(
    ("line", "restores"),
    [
        ("optimizer.load_state_dict(state)", True),
        ("self.optim_g.load_state_dict(state['g'])", True),
        ("unknown.load_state_dict(state['optimizer'])", True),
        ("utils.load_checkpoint(path, model, optimizer)", True),
        ("resume(path, optimizer=optimizer)", True),
        ("model.load_state_dict(state)", False),
        ("unknown.load_state_dict(torch.load(opt.path))", False),
        ("scheduler.load_state_dict(state)", False),
        ("load_data(path, model)", False),
        ("save(optimizer.state_dict(), path)", False),
        ("own_load(optimizer)", False),
    ],
)
def test_restores(line: str, restores: bool) -> None:
    script = _script(
        f"""
        import torch
        def own_load(optimizer):
            return optimizer
        def main(self, model, optimizer, scheduler, unknown, state, path, opt):
            {line}
        """
    )
    assert bool(script.optimizers.restores) is restores


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("def build(net):\n    return torch.optim.SGD(net.parameters())", True),
        (
            "def build(net):\n    made = torch.optim.SGD(net.parameters())\n    return net, made",
            True,
        ),
        ("class A:\n    def __init__(self):\n        self.o = torch.optim.SGD([])", True),
        (
            "def main(net):\n    made = torch.optim.SGD(net.parameters())\n    train(net, made)",
            False,
        ),
        (
            "def build(net):\n    made = torch.optim.SGD(net.parameters())\n    return made\n"
            "optimizer = build(None)\noptimizer.step()",
            False,
        ),
    ],
)
def test_hidden(text: str, hidden: bool) -> None:
    script = _script(f"import torch\n{text}\n")
    (made,) = script.optimizers
    assert made.is_stepped_unseen is hidden


def test_labels() -> None:
    script = _script(
        """
        import torch
        a, self.b = torch.optim.SGD([]), torch.optim.SGD([])
        choice = {"c": torch.optim.SGD([])}
        self.all: list = [torch.optim.SGD([])]
        def build():
            return torch.optim.SGD([])
        use(torch.optim.SGD([]))
        use(optimizer=torch.optim.SGD([]))
        """
    )
    labels = [optimizer.label for optimizer in script.optimizers]
    assert labels == [
        "`a`",
        "`self.b`",
        'the optimizer "c"',
        "the optimizer in `self.all`",
        "the optimizer of `build()`",
        "this optimizer",
        "`optimizer`",
    ]


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("torch.optim.SGD([])", 1),
        ("torch.optim.SGD([]) if fast else torch.optim.Adam([])", 2),
        ("make()", None),
        ("wrap(torch.optim.SGD([]))", None),
    ],
)
def test_made_by(value: str, made: int | None) -> None:
    script = _script(f"import torch\ndef main(fast):\n    opt = {value}\n    opt.step()\n")
    (step,) = script.calls.of_methods("step")
    found = script.optimizers.made_by(step.receiver)
    assert (None if found is None else len(found)) == made
