"""What the fix of TL701 makes, run: plain python as before, torchrun in two processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scriptruns import ScriptServer
from torchrun import Run, fixed, run, run_in_forks

ROOT = Path(__file__).parents[2]
CLASSIFIER = ROOT / "fixtures/scripts/dataparallel_classifier/before.py"
WAVES = ROOT / "fixtures/rules/tl701_data_parallel/slow.py"

AT_MODULE_LEVEL = '''\
"""A script without functions; every global batch holds the same samples, however it is dealt."""
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
device = "cuda:0" if torch.cuda.is_available() else "cpu"
points = torch.randn(96, 6)
targets = points @ torch.randn(6, 2) + 0.5
loader = DataLoader(TensorDataset(points, targets), batch_size=24, drop_last=True)
test_loader = DataLoader(TensorDataset(points, targets), batch_size=7, shuffle=False)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2)).to(device)
if torch.cuda.device_count() > 1:
    net = nn.DataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
losses = []
for _ in range(4):
    net.train()
    total, seen = 0.0, 0
    hits = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = net(x)
        loss = nn.functional.mse_loss(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * x.size(0)
        seen += x.size(0)
        hits += (out.argmax(1) == y.argmax(1)).sum().item()
    print(total / seen, hits / seen)
    net.eval()
    with torch.no_grad():
        error = sum(nn.functional.mse_loss(net(x), y, reduction="sum") for x, y in test_loader)
    losses.append(float(error))
    scheduler.step(error)
    if not os.path.isdir("models"):
        os.mkdir("models")
    torch.save(net.state_dict(), "models/%d.pt" % len(losses))
print("seen:", seen)
print("losses:", losses)
'''

FULL_BATCH = '''\
"""Shuffled, but each batch is the whole data set; the loop is in a function with a meter."""
import logging
import sys

import torch
from torch import nn
from torch.nn.parallel import DataParallel
from torch.utils.data import DataLoader, TensorDataset


class Meter:
    def __init__(self):
        self.sum, self.count, self.avg = 0.0, 0, 0.0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count


def train(model, train_loader, criterion, optimizer):
    meter = Meter()
    running = torch.zeros(())
    for step, (x, y) in enumerate(train_loader):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss.item(), len(x))
        running += loss.detach()
    print(meter.avg, running.item() / len(train_loader), meter.count)


def main():
    torch.manual_seed(5)
    x = torch.randn(64, 5)
    y = (x.sum(1) > 0).long()
    train_loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model = DataParallel(nn.Linear(5, 2))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for epoch in range(5):
        train(model, train_loader, criterion, optimizer)
        with torch.no_grad():
            losses.append(criterion(model(x), y).item())
        logging.warning("epoch %d", epoch)
    torch.save(model.module.state_dict(), sys.argv[1])
    best = torch.load(sys.argv[1])
    model.module.load_state_dict(best)
    print("losses:", losses)


if __name__ == "__main__":
    main()
'''


NAMES = ("classifier", "waves", "module", "full_batch")
SOURCES = {
    "classifier": (CLASSIFIER.read_bytes(), ("--epochs=2", "--checkpoint=model.pt")),
    "waves": (WAVES.read_bytes(), ("--epochs=2", "--checkpoint=model.pt")),
    "module": (AT_MODULE_LEVEL.encode(), ()),
    "full_batch": (FULL_BATCH.encode(), ("model.pt",)),
}


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="scripts run in forks")


@dataclass(frozen=True)
class Case:
    """A script as it was, run once, and as it is fixed."""

    name: str
    server: ScriptServer
    fixed: bytes
    arguments: tuple[str, ...]
    one: Run


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptServer]:
    with ScriptServer(PYTHONWARNINGS="default::ResourceWarning") as started:
        yield started


@pytest.fixture(scope="module", params=NAMES)
def case(
    request: pytest.FixtureRequest, server: ScriptServer, tmp_path_factory: pytest.TempPathFactory
) -> Case:
    source, arguments = SOURCES[request.param]
    folder = tmp_path_factory.mktemp(request.param) / "one"
    one = run_in_forks(server, folder, source, *arguments)
    return Case(request.param, server, fixed(source), arguments, one)


def test_plain_python_runs_as_before(case: Case, tmp_path: Path) -> None:
    after = run_in_forks(case.server, tmp_path / "after", case.fixed, *case.arguments)
    assert after.losses == case.one.losses
    assert after.said == case.one.said
    assert after.files == case.one.files


def test_two_processes_speak_and_write_as_one(case: Case, tmp_path: Path) -> None:
    two = run_in_forks(case.server, tmp_path / "two", case.fixed, *case.arguments, processes=2)
    said = [line for line in two.output.splitlines() if "GPUs" not in line]  # wraps on any device
    assert len(said) == len(case.one.output.splitlines())
    assert two.files == case.one.files
    assert "destroy_process_group" not in two.errors
    warned = [line for line in two.errors.splitlines() if "ResourceWarning" in line]
    assert not [line for line in warned if os.devnull not in line]  # where a rank prints to
    assert two.errors.count("epoch 4") == case.one.errors.count("epoch 4")
    assert len(two.losses) == len(case.one.losses)
    if case.name in ("module", "full_batch"):
        # the same samples in every global batch, and neither batch norm nor dropout
        assert two.losses == pytest.approx(case.one.losses, rel=1e-5)
    else:
        assert two.losses[-1] < two.losses[0]


def test_torchrun_starts_what_is_fixed(tmp_path: Path) -> None:
    source, arguments = SOURCES["full_batch"]
    two = run(tmp_path, fixed(source), *arguments, processes=2)
    assert two.files == ("model.pt",)
    assert "ResourceWarning" not in two.errors
    assert two.errors.count("epoch 4") == 1
