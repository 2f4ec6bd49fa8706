"""Compiled: what is compiled, in whatever spelling, and what runs inside it."""

from __future__ import annotations

import textwrap

import pytest

from torchlint.semantic.script import Script
from torchlint.source import Source

BEFORE = """
import functools, torch
from torch import nn
class Inner(nn.Module):
    def forward(self, x):
        return helper(x)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x):
        return self.inner(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.more = nn.ModuleList()
        for _ in range(2):
            self.more.append(Block())
        self.parts = nn.ModuleDict(dict(h=nn.ModuleList([Block()]), tail=nn.Sequential(Inner())))
    def forward(self, x):
        return x
class Deep(Net):
    def forward(self, x):
        return self.run(x) + super().forward(x)
    def run(self, x):
        return x
def helper(x):
    return x
def build(deep):
    return Deep() if deep else Net()
def maybe(net, on):
    return torch.compile(net) if on else net
net = Net()
"""


def _script(text: str) -> Script:
    return Script.parse(Source("train.py", BEFORE + textwrap.dedent(text)))


def _frames(text: str) -> set[str]:
    return {
        f"{frame.owner.name.value}.{frame.function.name.value}"
        if frame.owner is not None
        else frame.function.name.value
        for frame in _script(text).modules.compiled.frames
    }


BLOCK = {"Block.forward", "Inner.forward", "helper"}


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        ("fast = torch.compile(helper)", {"helper"}),
        ("fast = torch.compile(mode='max-autotune')(helper)", {"helper"}),
        ("make = functools.partial(torch.compile, dynamic=True)\nfast = make(helper)", {"helper"}),
        ("@torch.compile\ndef f(x):\n    return helper(x)", {"f", "helper"}),
        ("@torch.compile(dynamic=True)\ndef f(x):\n    return x", {"f"}),
        ("@functools.partial(torch.compile, dynamic=True)\ndef f(x):\n    return x", {"f"}),
        ("net = torch.compile(net)", {"Net.forward"}),
        ("net.compile()", {"Net.forward"}),
        ("net.forward = torch.compile(net.forward)", {"Net.forward"}),
        ("net = torch.compile(net) if net else net", {"Net.forward"}),
        ("net = maybe(Deep(), True)", {"Deep.forward", "Deep.run"}),
        ("net = build(True)\nnet.compile()", {"Deep.forward", "Deep.run", "Net.forward"}),
        ("for block in net.blocks:\n    block.compile()", BLOCK),
        ("for i, b in enumerate(net.blocks):\n    net.blocks[i] = torch.compile(b)", BLOCK),
        ("for block in net.more:\n    block.compile()", BLOCK),
        ("for block in net.parts.h:\n    block.compile()", BLOCK),
        ("tail = torch.compile(net.parts.tail)", {"Inner.forward", "helper"}),
        ("for name, part in net.named_children():\n    part.compile()", BLOCK),
        ("net = torch.nn.parallel.DistributedDataParallel(net)\nnet.compile()", {"Net.forward"}),
        ("net = torch.compile(net, disable=True)", set()),
        ("net.compile(optimizer='adam', loss='mse')", set()),
        ("import re\npattern = re.compile('a')", set()),
        ("helper = torch.compiler.disable(helper)\nnet.blocks[0].compile()", {*BLOCK} - {"helper"}),
        ("def f(x):\n    return x", set()),
    ],
)
def test_frames(text: str, frames: set[str]) -> None:
    found = _frames(text)
    if "named_children" in text:
        assert found >= frames
    else:
        assert found == frames


@pytest.mark.parametrize(
    ("options", "expected"),
    [("fullgraph=True", True), ("fullgraph=False", False), ("", False)],
)
def test_options(options: str, expected: bool) -> None:
    compiled = _script(f"fast = torch.compile(net, {options})").modules.compiled
    assert compiled.option(compiled.all[-1], "fullgraph").equals(True) is expected


@pytest.mark.parametrize(
    ("body", "skipped"),
    [
        ("return helper(x)", None),
        ("for _ in range(2):\n        x = helper(x)\n    return x", "f"),
        ("try:\n        x = helper(x)\n    except ValueError:\n        pass\n    return x", "f"),
        ("with torch.no_grad():\n        x = helper(x)\n    return x", None),
    ],
)
def test_the_caller_that_a_break_costs(body: str, skipped: str | None) -> None:
    frames = _script(f"@torch.compile\ndef f(x):\n    {body}").modules.compiled.frames
    (inner,) = (frame for frame in frames if frame.function.name.value == "helper")
    assert (inner.skipped.name.value if inner.skipped else None) == skipped


@pytest.mark.parametrize(
    ("test", "taken", "left_out"),
    [
        ("self.training", True, False),
        ("not self.training", False, False),
        ("y is not None", True, False),
        ("y is None", False, False),
        ("i % 2 == 0", True, False),
        ("self.verbose", False, False),
        ("self.training and self.verbose", False, False),
        ("not torch.compiler.is_compiling()", False, True),
        ("torch.compiler.is_compiling()", True, False),
        ("torch.jit.is_scripting()", False, True),
        ("y and not torch.compiler.is_compiling()", False, True),
    ],
)
def test_what_a_pass_reaches(test: str, taken: bool, left_out: bool) -> None:
    script = _script(
        f"""
        class Last(nn.Module):
            def forward(self, x, y):
                for i in range(4):
                    if {test}:
                        print(x)
        """
    )
    (call,) = (site.node for site in script.calls.of("builtins.print"))
    assert script.modules.compiled.is_taken(call) is taken
    assert script.modules.compiled.is_left_out(call) is left_out
