"""What a function runs is in sight, or the first call that is not is named."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from torchlint.semantic.script import Script
from torchlint.source import Source

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm
import mine
from mine import Backbone, helper, mark

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.ReLU()])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return F.relu(x)

class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Backbone()
    def forward(self, x):
        return self.body(x)

class Derived(Backbone):
    pass

class Given(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
    def forward(self, x):
        return self.body(x)

def plain(x):
    return x.relu().sum()

@mark
def marked(x):
    return x
"""


def _unseen(body: str, parameters: str = "x, loader", behind: str = "") -> str | None:
    lines = textwrap.indent(body, "    ")
    text = f"{HEAD}\ndef asked({parameters}):\n{lines}\n{behind}\n"
    script = Script.parse(Source("asked.py", text))
    (function,) = (each for each in script.tree.all(cst.FunctionDef) if each.name.value == "asked")
    call = script.values.visibility.unseen_call(function.body)
    return None if call is None else script.code(call.func)


@pytest.mark.parametrize(
    "body",
    [
        "return F.relu(x).mean().item()",
        "return plain(x)",
        "net = Block()\nreturn net(x)",
        "net = nn.Sequential(Block(), nn.ReLU()).cuda()\nreturn net(x)",
        "net = Given(nn.Linear(4, 4))\nreturn net(x)",
        "net = Given(Block())\nnet.eval()\nreturn net.forward(x)",
        "for a, b in tqdm(loader):\n    print(a.to('cpu').shape, len(b))",
        "criterion = nn.CrossEntropyLoss()\nreturn criterion(x, x)",
        "f = lambda a: a.sum()\nreturn f(x)",
    ],
)
def test_in_sight(body: str) -> None:
    assert _unseen(body) is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("return helper(x)", "helper"),
        ("return mine.helper(x)", "mine.helper"),
        ("return marked(x)", "marked"),
        ("net = Backbone()\nreturn net(x)", "Backbone"),
        ("net = Hidden()\nreturn net(x)", "Hidden"),
        ("net = Derived()\nreturn net(x)", "Derived"),
        ("net = Given(Backbone())\nreturn net(x)", "Given"),
        ("net = nn.Sequential(Block(), Backbone())\nreturn net(x)", "Backbone"),
        ("net = nn.DataParallel(mine.net)\nreturn net(x)", "net"),
        ("f = lambda a: helper(a)\nreturn f(x)", "helper"),
        ("return map(helper, x)", "map"),
        (
            "return torch.utils.checkpoint.checkpoint(helper, x)",
            "torch.utils.checkpoint.checkpoint",
        ),
        ("def inner(a):\n    return helper(a)\nreturn inner(x)", "inner"),
        ("return unbound(x)", "unbound"),
    ],
)
def test_out_of_sight(body: str, named: str) -> None:
    assert _unseen(body) == named


def test_a_parameter_is_what_the_callers_hand_over() -> None:
    assert _unseen("return net(x)", "net, x") == "net"
    assert _unseen("return net(x)", "net, x", "asked(Block(), 0)") is None
    assert _unseen("return net(x)", "net, x", "asked(Block(), 0)\nasked(Backbone(), 0)") == "net"


def test_values_made_of_themselves_end() -> None:
    assert _unseen("for net in net:\n    net = net(x)\nreturn net") == "net"
    assert _unseen("f = g\ng = f\nreturn f(x)") == "f"
