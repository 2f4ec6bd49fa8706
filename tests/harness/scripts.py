"""Small training scripts, and how they are run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

from torchlint.harness.plan import Mode, Task
from torchlint.harness.runs import process
from torchlint.harness.runs.forkserver import ForkServer
from torchlint.harness.trace import Trace

PLAIN = """
    import torch
    from torch import nn

    torch.manual_seed(1)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(1000):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
    """
"""A script at module level, without a function."""


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    """Write a script."""
    path = folder / name
    path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    return path


def run(script: Path, mode: Mode = "numbers", **options: Any) -> Trace:
    """Run a script once."""
    texts: Mapping[str, str] = options.pop("texts", {})
    timeout = options.pop("timeout", 120)
    server: ForkServer | None = options.pop("server", None)
    folder = options.pop("folder", script.parent / ".torchlint-run")
    task = Task(
        script=str(script),
        args=tuple(options.pop("args", ())),
        root=str(script.parent),
        folder=str(folder),
        mode=mode,
        seed=0,
        texts={path: dedent(text) for path, text in texts.items()},
        **{"steps": 6, "warmup": 2, **options},
    )
    return process.run(task, device="cpu", timeout=timeout, verbose=False, server=server)
