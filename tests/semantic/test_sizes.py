"""Sizes: which networks are tiny, and which have no weights at all."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from torchlint.semantic.script import Script
from torchlint.source import Source

_CLASSES = """
import math
import types
import numpy as np
import timm
import torch
from torch import nn
class Policy(nn.Module):
    def __init__(self, inputs, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, 2))
class Deep(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(12)])
class Digits(nn.Module):
    def __init__(self, hidden=10):
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, kernel_size=(5, 5))
        self.head = nn.Linear(320, hidden)
class Sharpen(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 64, 9), nn.Conv2d(64, 3, 5)
class Table(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(rows, width) * 0.02)
class Painter(nn.Module):
    def __init__(self, shape=(3, 32, 32), width=64, mult=4, depth=0):
        super().__init__()
        hidden = width * mult
        layers = [nn.Linear(width, hidden), nn.GELU()]
        for _ in range(depth):
            layers += [nn.Linear(hidden, hidden), nn.GELU()]
        self.body = nn.Sequential(*layers, nn.Linear(hidden, int(np.prod(shape))))
def chain(sizes, linear=nn.Linear, activation=nn.ReLU):
    layers = []
    for one, other in zip(sizes[:-1], sizes[1:]):
        layers += [linear(one, other), activation()]
    return nn.Sequential(*layers)
options = types.SimpleNamespace()
options.width = 64
class Mixer(nn.Module):
    def __init__(self, sides=(32, 32)):
        super().__init__()
        self.mix = nn.Linear(math.prod(sides), math.prod(sides))
    def forward(self, x):
        return torch.softmax(self.mix(x) @ x, -1)
class Noted(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        return timm.noted(self.head(x)) * timm.scale(x)
class Late(Noted):
    def build(self):
        self.body = timm.create_model("resnet50")
class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.head = net, nn.Linear(8, 2)
    def forward(self, x):
        return timm.noted(self.head(self.net(x)))
def pair(width):
    return Policy(width), nn.Linear(4096, 4096)
class Spectrum(nn.Module):
    def forward(self, x):
        return torch.stft(x, 400)
"""


def _network(made: str) -> tuple[Script, cst.BaseExpression]:
    text = f"{textwrap.dedent(_CLASSES)}net = {made}\nnet(x)\n"
    script = Script.parse(Source("train.py", text))
    return script, script.tree.all(cst.Call)[-1].func


@pytest.mark.parametrize(
    ("made", "tiny"),
    [
        ("nn.Linear(20, 64)", True),
        ("nn.Linear(28 * 28, 128)", True),
        ("nn.Linear(784, 1024)", True),
        ("nn.Linear(features, 64)", True),
        ("nn.Linear(features, classes)", False),
        ("nn.Linear(features, 4096)", False),
        ("nn.LSTM(1, 50, 2)", True),
        ("nn.LSTM(300, 512)", False),
        ("nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 2))", True),
        ("nn.Sequential(nn.Embedding(words, 16), nn.Linear(16, 2))", True),
        ("nn.Sequential(nn.Embedding(words, 16), nn.Linear(16, words))", False),
        ("nn.Embedding(words, 300)", True),
        ("nn.Sequential(nn.Linear(28 * 28, 1024), nn.Embedding(10, 1024))", True),
        ("Digits(1024)", True),
        ("Digits(8192)", False),
        ("nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(8, 2))", False),
        ("nn.Sequential(*layers)", False),
        ("Digits()", True),
        ("Sharpen()", False),
        ("Table(10, 16)", True),
        ("Table(words, 16)", True),
        ("Table(50000, 16)", False),
        ("Table(words, features)", False),
        ("Policy(4)", True),
        ("Policy(784, hidden=2048)", False),
        ("chain([2] + list((64, 64)) + [1])", True),
        ("chain([2] + [128] * 3 + [1])", True),
        ("chain([2] + [4096] * 3 + [1])", False),
        ("Deep(64)", True),
        ("nn.Sequential(nn.Linear(784, 256), nn.Linear(256, 256), nn.Linear(256, 10))", True),
        ("Deep(512)", False),
        ("Painter()", True),
        ("Painter(depth=8)", True),
        ("Painter(mult=64, depth=8)", False),
        ("nn.Sequential(nn.Linear(3 * 64 * 64, 1024), nn.Linear(1024, 3 * 64 * 64))", False),
        ("nn.Sequential(nn.Linear(28 * 28, 1024), nn.Linear(1024, 28 * 28))", True),
        ("nn.Sequential(nn.Linear(28 * 28, 1024), nn.Embedding(50000, 1024))", False),
        ("Mixer()", False),
        ("Noted()", True),
        ("Late()", False),
        ("0\nlarge = timm.create_model('resnet50')\nnet = Wrapped(large)", False),
        ("0\nlarge = nn.Linear(4096, 4096)\nnet = Wrapped(large)", False),
        ("0\nsmall = nn.Linear(8, 8)\nnet = Wrapped(small)", True),
        ("nn.MultiheadAttention(64, 4)", True),
        ("nn.MultiheadAttention(1024, 4)", False),
        ("0\nnet, other = pair(4)", True),
        ("0\nother, net = pair(4)", False),
        ("nn.LSTM(options.width, options.width, 3)", True),
        ("nn.LSTM(options.inputs, options.inputs, 3)", False),
        ("timm.create_model('resnet50')", False),
        ("unknown", False),
    ],
)
def test_tiny(made: str, tiny: bool) -> None:
    script, network = _network(made)
    assert script.modules.sizes.are_tiny(network) is tiny


@pytest.mark.parametrize(
    ("made", "weightless"),
    [
        ("Spectrum()", True),
        ("nn.ReLU()", True),
        ("nn.BatchNorm1d(4)", False),
        ("Policy(4)", False),
        ("timm.create_model('resnet50')", False),
        ("unknown", False),
    ],
)
def test_weightless(made: str, weightless: bool) -> None:
    script, network = _network(made)
    assert script.modules.sizes.is_weightless(network) is weightless


def test_steps_of_few_filters() -> None:
    script, _ = _network("Sharpen()\noptimizer = torch.optim.Adam(net.parameters())")
    optimizer = next(script.calls.of("torch.optim.Adam")).node
    assert script.modules.sizes.updates_tiny(optimizer)
