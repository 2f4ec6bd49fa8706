"""Measure the share of a step that the hooks of `verify --html` cost: `python benchmarks/hooks.py`.

An empty network is called many times, with and without the hooks that record the phases of a step.
Their cost, times the number of phases of a small network, is compared with a step of 5 ms. Calls of
inner modules count where they have the class of the outer one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchlint.harness.child.timeline import Timeline

_CALLS: Final = 200
_REPEATS: Final = 2_000
_STEP: Final = 5e-3


class Hooked(nn.Module):  # type: ignore[misc]
    """A network of a hundred calls, half of them of its own class."""

    def __init__(self, depth: int = 0) -> None:
        super().__init__()
        self.inner = nn.ModuleList(Hooked(depth + 1) for _ in range(50 * (depth == 0)))
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Call every part in turn."""
        for part in self.inner:
            x = part(x)
        return self.layer(x)


class Idle(nn.Module):  # type: ignore[misc]
    """A network that does nothing, which shows the cost of a call."""

    def forward(self, x: None) -> None:
        """Do nothing."""


def cost(function: Callable[..., Any]) -> float:
    """Return the least seconds of a call, so that other programs do not count."""
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        for _ in range(_CALLS):
            function(None)
        times.append((time.perf_counter() - began) / _CALLS)
    return min(times)


def main() -> None:
    """Measure and print."""
    net, criterion = Hooked(), nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(256, 8), torch.randn(256, 8))
    timeline = Timeline()
    timeline.watch_networks()
    timeline.begin()
    for x, y in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        criterion(net(x), y).backward()
        optimizer.step()
        timeline.end_step()
    phases = len(timeline.phases()) / len(timeline.steps())

    idle = Idle()
    plain = cost(idle)
    Idle.__call__ = timeline._inside("forward", Idle.__call__)
    phase = cost(idle) - plain
    inside: list[float] = []
    timeline._inside("backward", lambda: inside.append(cost(idle) - plain))()
    total = phases * phase + 50 * inside[0]
    print(f"a phase costs {phase * 1e6:.2f} µs, a call inside one {inside[0] * 1e6:.2f} µs")
    print(f"{phases:.1f} phases and 50 such calls: {total * 1e6:.0f} µs", end=", ")
    print(f"{total / _STEP:.2%} of a 5 ms step")


if __name__ == "__main__":
    main()
