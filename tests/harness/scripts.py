"""Small training scripts, and how they are run."""

from __future__ import annotations

import atexit
import functools
import sys
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
    """Run a script once, forked from a process that has imported torch."""
    return run_by(torch_server(), script, mode, **options)


@functools.cache
def torch_server() -> ForkServer | None:
    """Return what forks the runs of all tests of this process, where runs can be forked."""
    if sys.platform != "linux":
        return None
    tests = str(Path(__file__).parents[1])
    variables = {**process.environment("cpu", Path.home()), "PYTHONPATH": tests}
    server = ForkServer(("torch", "torch._dynamo"), variables, verbose=False)
    atexit.register(server.close)
    return server


class SharedServer:
    """What a session takes for a server of its own, in place of which all tests have one."""

    def __init__(self, *start: Any, verbose: bool = False) -> None:
        server = torch_server()
        assert server is not None
        self.start, self.ready = server.start, server.ready

    def close(self) -> None:
        """Leave the server to the next session."""


def run_by(
    server: ForkServer | None, script: Path, mode: Mode = "numbers", **options: Any
) -> Trace:
    """Run a script once, forked by a server or, without one, in a process that starts."""
    texts: Mapping[str, str] = options.pop("texts", {})
    timeout = options.pop("timeout", 120)
    folder = options.pop("folder", script.parent / ".torchlint-run")
    task = Task(
        script=str(script),
        args=tuple(options.pop("args", ())),
        root=str(options.pop("root", script.parent)),
        folder=str(folder),
        mode=mode,
        seed=0,
        texts={path: dedent(text) for path, text in texts.items()},
        **{"steps": 6, "warmup": 2, **options},
    )
    return process.run(task, device="cpu", timeout=timeout, verbose=False, server=server)
