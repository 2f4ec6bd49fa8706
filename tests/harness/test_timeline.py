"""What a step is made of: the hooks, and the arithmetic on what they saw."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from harness.scripts import run, write

from torchlint.harness.judging.anatomy import usual_step
from torchlint.harness.trace import Phase, Trace

LOADER = """
    import copy, pickle
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    net = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 1))
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    for epoch in range(100):
        for x, y in DataLoader(data, batch_size=16):
            loss = criterion(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pickle.loads(pickle.dumps(copy.deepcopy(net)))
        with torch.no_grad():
            net(data.tensors[0])
    """


def names(trace: Trace) -> list[str]:
    return [phase.name for phase in trace.phases]


def test_the_phases_of_each_step_are_seen_in_their_order(tmp_path: Path) -> None:
    trace = run(write(tmp_path, LOADER), "timeline", steps=6, warmup=2)
    assert trace.failure is None
    assert len(trace.durations) == 6
    ends = [0.0]
    for duration in trace.durations:
        ends.append(ends[-1] + duration)
    for start, end in pairwise(ends):
        inside = [phase.name for phase in trace.phases if start <= phase.start < end]
        without_end_of_loader = inside[inside.count("data") - 1 :]
        assert without_end_of_loader == ["data", "forward", "forward", "backward", "optimizer"]
    assert all(phase.start <= phase.end for phase in trace.phases)
    assert all(one.end <= other.start for one, other in pairwise(trace.phases))
    assert trace.warnings == ()


def test_forward_and_backward_of_a_closure_are_not_the_optimizers(tmp_path: Path) -> None:
    text = """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 8)
                self.b = nn.Linear(8, 1)

            def forward(self, x):
                return self.b(self.a(x).relu())

        net = Net()
        optimizer = torch.optim.LBFGS(net.parameters(), lr=0.01, max_iter=1)
        net = torch.compile(net, backend="eager", fullgraph=True)
        x, y = torch.randn(8, 4), torch.randn(8, 1)

        def closure():
            optimizer.zero_grad()
            loss = (net(x) - y).pow(2).mean()
            loss.backward()
            return loss

        for step in range(20):
            optimizer.step(closure)
        """
    trace = run(write(tmp_path, text), "timeline", steps=4, warmup=2)
    assert trace.failure is None
    assert names(trace) == ["optimizer", "forward", "optimizer", "backward", "optimizer"] * 4


def test_a_step_that_a_compiler_has_swallowed_is_left_whole(tmp_path: Path) -> None:
    text = """
        import torch
        from torch import nn

        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        @torch.compile(backend="eager", fullgraph=True)
        def loss_of(x):
            return net(x).pow(2).mean()

        for step in range(20):
            optimizer.zero_grad()
            loss_of(torch.randn(8, 4)).backward()
            optimizer.step()
            assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
        """
    trace = run(write(tmp_path, text), "timeline", steps=4, warmup=2)
    assert trace.failure is None
    assert names(trace) == ["backward", "optimizer"] * 4


def test_a_script_that_ends_before_the_window_has_no_phases(tmp_path: Path) -> None:
    trace = run(
        write(tmp_path, LOADER.replace("range(100)", "range(1)")), "timeline", warmup=9, steps=2
    )
    assert (trace.ending, trace.durations, trace.phases) == ("ended", (), ())
    assert usual_step(trace) is None


def test_the_step_of_median_length_is_shown_in_its_own_time() -> None:
    trace = Trace(
        "full",
        durations=(1.0, 2.0, 30.0, 3.0),
        phases=(
            Phase("data", 0.0, 0.5),
            Phase("forward", 0.8, 1.2),
            Phase("backward", 1.5, 2.0),
            Phase("optimizer", 10.0, 20.0),
            Phase("data", 33.0, 34.0),
        ),
    )
    step = usual_step(trace)
    assert step is not None
    assert step.seconds == 2.0
    assert [(p.name, round(p.start, 6), round(p.end, 6)) for p in step.phases] == [
        ("forward", 0.0, 0.2),
        ("backward", 0.5, 1.0),
    ]
    means = dict(step.means)
    assert means["data"] == pytest.approx(0.5)
    assert means["forward"] == pytest.approx(0.4 / 3)
    assert means["optimizer"] == 0.0
    assert sum(means.values()) == pytest.approx(2.0)


def test_a_run_that_failed_or_never_was_has_no_step() -> None:
    assert usual_step(None) is None
    assert usual_step(Trace("failed", durations=(1.0,))) is None
    assert usual_step(Trace("ended")) is None
