"""Where the steps of a script are found, and what is done with a script that takes none."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.scripts import run, write

from torchlint.finding import Safety
from torchlint.harness.plan import Plan, Variant
from torchlint.harness.session import Session

SCALED = """
    import torch
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    batch = 0
    while True:
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(torch.randn(8, 4)).float().pow(2).mean()
        scaler.scale(loss / 4).backward()
        batch += 1
        if batch % 4 == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    """

ACCELERATED = """
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(256, 4)), batch_size=4)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for epoch in range(9):
        for (x,) in loader:
            with accelerator.accumulate(net):
                loss = net(x).pow(2).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    """

LIGHTNING = """
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
        def training_step(self, batch, index):
            return self.layer(batch[0]).pow(2).mean()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = DataLoader(TensorDataset(torch.randn(256, 4)), batch_size=4)
    lightning.Trainer(max_epochs=9, accelerator="cpu").fit(Net(), loader)
    """


def test_steps_of_a_scaled_accumulating_endless_loop(tmp_path: Path) -> None:
    trace = run(write(tmp_path, SCALED))
    assert trace.failure is None
    assert (trace.ending, trace.taken, len(trace.losses)) == ("full", 8, 32)


@pytest.mark.parametrize(
    ("library", "text", "losses"), [("accelerate", ACCELERATED, 16), ("lightning", LIGHTNING, 8)]
)
def test_steps_inside_a_framework(tmp_path: Path, library: str, text: str, losses: int) -> None:
    pytest.importorskip(library, reason=f"{library} is no dependency of torchlint")
    trace = run(write(tmp_path, text))
    assert trace.failure is None
    assert (trace.ending, trace.taken, len(trace.losses)) == ("full", 8, losses)


def test_a_run_of_no_steps_goes_from_start_to_end(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch
        net = torch.nn.Linear(4, 1)
        with torch.no_grad():
            print(sum(float(net(torch.ones(2, 4)).sum()) for _ in range(50)))
        """,
    )
    trace = run(script, "time", steps=0, warmup=0)
    assert (trace.ending, trace.taken, len(trace.durations)) == ("ended", 0, 1)
    assert trace.durations[0] > 0
    assert trace.output


def test_a_script_that_updates_weights_itself_steps_with_each_backward(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 1)
        while True:
            net.zero_grad()
            net(torch.randn(8, 4)).pow(2).mean().backward()
            for parameter in net.parameters():
                parameter.data.add_(parameter.grad, alpha=-0.01)
        """,
    )
    renamed = script.read_text().replace("parameter", "weight")
    renamed = renamed.replace("net.weights()", "net.parameters()")
    variant = Variant("rule", ("TL901",), Safety.EXACT, {str(script): renamed})
    with Session(Plan(script, steps=8, warmup=2, rounds=2, device="cpu")) as session:
        report = session.measure([variant])
    (outcome,) = report.outcomes
    assert outcome.comparison is not None
    assert (outcome.comparison.word, outcome.comparison.losses) == ("equal", 10)
    assert outcome.speedup is not None
    assert (report.steps, report.whole) == (8, False)
    assert "steps-by-hand" in {doubt.name for doubt in report.doubts}
