"""Loops that accumulate gradients, and networks that average them over processes."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from torchlint.semantic.script import Script
from torchlint.semantic.training.processes import Wrapped
from torchlint.source import Source


def _script(text: str) -> Script:
    return Script.parse(Source("train.py", textwrap.dedent(text)))


LOOPS = {
    "every fourth pass steps": (
        """
        for i, x in enumerate(loader):
            model(x).backward()
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        """,
        "(i + 1) % 4 == 0",
    ),
    "a test with a name": (
        """
        for i, x in enumerate(loader):
            last = (i + 1) % 4 == 0
            model(x).backward()
            if last:
                optimizer.step()
        """,
        "last",
    ),
    "a helper is told": (
        """
        for i, x in enumerate(loader):
            scaler(model(x), optimizer, update_grad=i % 4 == 0)
        """,
        "i % 4 == 0",
    ),
    "parts of a batch": (
        """
        for x in loader:
            for part in x.split(4):
                model(part).backward()
            optimizer.step()
        """,
        None,
    ),
}


@pytest.mark.parametrize(("text", "test"), LOOPS.values(), ids=LOOPS)
def test_windows(text: str, test: str | None) -> None:
    script = _script("import torch\noptimizer = torch.optim.SGD(p, lr=1)\n" + textwrap.dedent(text))
    (window,) = script.loops.gradient_accumulations.all()
    assert (script.code(window.test) if window.test is not None else None) == test


NO_WINDOWS = {
    "every pass steps": """
        for i, x in enumerate(loader):
            model(x).backward()
            optimizer.step()
            if i % 10 == 0:
                optimizer.zero_grad()
        """,
    "every pass clears": """
        for i, x in enumerate(loader):
            optimizer.zero_grad()
            model(x).backward()
            if i % 10 == 0:
                optimizer.step()
        """,
    "backward and step under one guard": """
        for i, x in enumerate(loader):
            loss = model(x)
            if i % 10 == 0:
                loss.backward()
                optimizer.step()
        """,
}


@pytest.mark.parametrize("text", NO_WINDOWS.values(), ids=NO_WINDOWS)
def test_no_windows(text: str) -> None:
    script = _script("import torch\noptimizer = torch.optim.SGD(p, lr=1)\n" + textwrap.dedent(text))
    assert not list(script.loops.gradient_accumulations.all())


@pytest.mark.parametrize(
    ("made", "wrapped"),
    [
        ("model = DDP(net)", Wrapped.YES),
        ("model = DDP(net).cuda()", Wrapped.YES),
        ("model = torch.compile(DDP(net))", Wrapped.YES),
        ("model = DDP(net) if several else net", Wrapped.MAYBE),
        ("model = net\nif several:\n    model = DDP(model)", Wrapped.MAYBE),
        ("model = torch.nn.DataParallel(net)", Wrapped.NO),
    ],
)
def test_wrapped_networks(made: str, wrapped: Wrapped) -> None:
    head = "import torch\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
    script = _script(f"{head}net = torch.nn.Linear(4, 4)\n{made}\nmodel(x)\n")
    use = script.tree.all(cst.Call)[-1].func
    assert isinstance(use, cst.Name)
    assert script.program.processes.wrapped(use) is wrapped
