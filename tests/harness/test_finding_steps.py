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

TRAINER = """
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    class Config(PretrainedConfig):
        model_type = "small"

    class Net(PreTrainedModel):
        config_class = Config
        def __init__(self, config):
            super().__init__(config)
            self.layer = torch.nn.Linear(4, 1)
            self.post_init()
        def forward(self, x, labels=None):
            out = self.layer(x)
            return {"loss": (out - labels).pow(2).mean(), "logits": out}

    data = [{"x": torch.full((4,), i / 64), "labels": torch.ones(1)} for i in range(64)]
    often = {"eval_strategy": "epoch", "save_strategy": "steps", "save_steps": 3}
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=4, gradient_accumulation_steps=2, use_cpu=True,
        num_train_epochs=9, report_to=[], **often
    )
    Trainer(Net(Config()), arguments, train_dataset=data, eval_dataset=data).train()
    """

SMALL_TRAINER = """
    import importlib.util
    import os
    assert importlib.util.find_spec("torch") and importlib.util.find_spec("safetensors")
    import torch
    from safetensors import safe_open, serialize_file

    class Prepared:
        def __init__(self, optimizer):
            self.optimizer = optimizer
            self.synchronizes = False
        def step(self):
            if self.synchronizes:
                self.optimizer.step()
        def zero_grad(self):
            if self.synchronizes:
                self.optimizer.zero_grad()

    class Trainer:
        def __init__(self, net, loader, accumulate):
            self.net, self.loader, self.accumulate = net, loader, accumulate
            optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
            self.scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda at: 0.99**at)
            self.optimizer, self.steps = Prepared(optimizer), 0
        def train(self):
            self.net.zero_grad()
            for epoch in range(9):
                for at, (x,) in enumerate(self.loader):
                    self.optimizer.synchronizes = (at + 1) % self.accumulate == 0
                    (self.net(x).pow(2).mean() / self.accumulate).backward()
                    if self.optimizer.synchronizes:
                        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                        self.optimizer.step()
                        self.scheduler.step()
                        self.optimizer.zero_grad()
                        self.steps += 1
                        if self.steps % 3 == 0:
                            self.save(f"out/checkpoint-{self.steps}")
                self.evaluate()
        def evaluate(self):
            self.net.eval()
            with torch.no_grad():
                print(sum(float(self.net(x).mean()) for (x,) in self.loader))
            self.net.train()
        def save(self, folder):
            os.makedirs(folder, exist_ok=True)
            serialize_file({"steps": self.steps}, os.path.join(folder, "model"))
            torch.save(self.scheduler.state_dict(), os.path.join(folder, "scheduler.pt"))
            assert safe_open(os.path.join(folder, "model")) == str(self.steps)

    data = torch.utils.data.TensorDataset(torch.randn(64, 4))
    Trainer(torch.nn.Linear(4, 1), torch.utils.data.DataLoader(data, 4), 2).train()
    """
"""What the Trainer of transformers does to torch, in its order."""

TENSORS = """
    import posix

    def serialize_file(tensors, filename, metadata=None):
        file = posix.open(filename, posix.O_WRONLY | posix.O_CREAT)
        posix.write(file, str(tensors["steps"]).encode())
        posix.close(file)

    def safe_open(filename):
        file = posix.open(filename, posix.O_RDONLY)
        return posix.read(file, 9).decode()
    """
"""Stands in for safetensors, whose files are opened by compiled code."""


def test_steps_of_a_scaled_accumulating_endless_loop(tmp_path: Path) -> None:
    trace = run(write(tmp_path, SCALED))
    assert trace.failure is None
    assert (trace.ending, trace.taken, len(trace.losses)) == ("full", 8, 32)


@pytest.mark.parametrize(
    ("library", "text", "losses"),
    [
        ("accelerate", ACCELERATED, 16),
        ("lightning", LIGHTNING, 8),
        ("transformers", TRAINER, 16),
    ],
)
def test_steps_inside_a_framework(tmp_path: Path, library: str, text: str, losses: int) -> None:
    pytest.importorskip(library, reason=f"{library} is no dependency of torchlint")
    trace = run(write(tmp_path, text))
    assert trace.failure is None
    assert (trace.ending, trace.taken, len(trace.losses)) == ("full", 8, losses)


def test_steps_of_a_trainer_that_accumulates_evaluates_and_saves(tmp_path: Path) -> None:
    write(tmp_path, TENSORS, "safetensors.py")
    script = write(tmp_path, SMALL_TRAINER)
    trace = run(script, steps=20, warmup=4)
    assert trace.failure is None
    assert (trace.ending, trace.taken, len(trace.losses)) == ("full", 24, 48)
    assert (trace.epoch, trace.epoch_steps) == (16, 8)
    assert any(path.endswith("out/checkpoint-21/model") for path in trace.diverted)
    assert not Path("out").exists()


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
