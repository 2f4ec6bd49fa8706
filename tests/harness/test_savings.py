"""What a fix saves of an epoch and of a whole training, in words."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.scripts import run, write

from torchlint.cli.epochs import epochs_of
from torchlint.finding import Safety
from torchlint.harness.judging.promise import Comparison
from torchlint.harness.judging.statistics import Speedup
from torchlint.harness.judging.verdict import Change, Outcome, Report, Verdict
from torchlint.harness.plan import Launcher, Variant
from torchlint.report.conclusion import savings
from torchlint.report.paint import Paint
from torchlint.report.verification import verification_text

FASTER = Outcome(
    Variant("rule", ("TL101",), Safety.EXACT, {"train.py": "a"}),
    Verdict.FASTER,
    Comparison("equal", True, 60, 8),
    Speedup(2.0, 1.9, 2.1),
    step_time=Change(0.2, 0.1),
)
REPORT = Report(
    *("train.py", (), "cuda", "2.13.0", 0, 50, 10, 3, None), (FASTER,), epoch_steps=1000.0
)
EPOCH = "saves 100 s of the 3.33 min that the 1000 training steps of an epoch take"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, EPOCH),
        ({"epochs": 90}, f"{EPOCH}: 2.5 h of 90 epochs"),
        ({"epochs": 90, "price": 2.5}, f"{EPOCH}: 2.5 h of 90 epochs, 6.25 $ at 2.50 $/h"),
        ({"price": 2.5}, f"{EPOCH}: 0.07 $ an epoch at 2.50 $/h"),
        (
            {"epochs": 90, "price": 2.5, "launcher": Launcher(8)},
            f"{EPOCH}: 2.5 h of 90 epochs, 50.00 $ at 2.50 $/h",
        ),
        ({"machine": {"indices": [0, 1]}, "price": 36.0}, f"{EPOCH}: 2.00 $ an epoch at 36.00 $/h"),
        ({"outcomes": (replace(FASTER, energy=Change(90.0, 50.0)),)}, f"{EPOCH}: 0.011 kWh"),
        ({"outcomes": (replace(FASTER, energy=Change(9.0, 8.0)),)}, f"{EPOCH}: 1e+03 J"),
        ({"epoch_steps": None}, ""),
        ({"whole": True}, ""),
        ({"outcomes": (replace(FASTER, work=Speedup(2.0, 1.9, 2.1)),)}, ""),
        ({"outcomes": (replace(FASTER, verdict=Verdict.UNSURE),)}, ""),
    ],
)
def test_only_what_was_measured_is_told_of_an_epoch(fields: dict[str, object], said: str) -> None:
    report = replace(REPORT, **fields)  # type: ignore[arg-type]
    assert savings(report) == said
    shown = verification_text(report, Paint())
    told = [line for line in shown.splitlines() if line.startswith("Saves ")]
    assert told == ([said.replace("saves", "Saves", 1)] if said else [])


LOOP = """
    import argparse
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    data = torch.utils.data.TensorDataset(torch.zeros(40, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    held_out = torch.utils.data.DataLoader(data, batch_size=1)
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        for at, (batch,) in enumerate(loader):
            net(batch).pow(2).mean().backward()
            if at % 2:
                optimizer.step()
                optimizer.zero_grad()
        for (batch,) in held_out:
            net(batch)
    """


@pytest.mark.parametrize(
    ("change", "args", "epochs"),
    [
        ("args.epochs", (), 7),
        ("args.epochs", ("--epochs", "9"), 9),
        ("args.epochs", ("--epochs=9",), 9),
        ("1, args.epochs + 1", (), 7),
        ("12", (), 12),
        ("int(args.epochs)", (), None),
        ("0, 12, 3", (), None),
    ],
)
def test_epochs_are_counted_where_the_script_shows_them(
    tmp_path: Path, change: str, args: tuple[str, ...], epochs: int | None
) -> None:
    script = write(tmp_path, LOOP.replace("range(args.epochs)", f"range({change})"))
    assert epochs_of(script, args) == epochs


def test_an_epoch_has_the_steps_that_its_loader_feeds(tmp_path: Path) -> None:
    trace = run(write(tmp_path, LOOP), "numbers", steps=10)
    assert (trace.epoch, trace.epoch_steps) == (40, 5.0)


class _Meter:
    """A stand-in for NVML that counts energy."""

    NVMLError = LookupError
    read = 0

    def __getattr__(self, name: str) -> Any:
        if name == "nvmlDeviceGetTotalEnergyConsumption":
            return self._count
        return lambda *given: given[-1] if given else None

    def _count(self, handle: str) -> int:
        if handle == "GPU-old":
            raise LookupError
        self.read += 5000
        return self.read


@pytest.mark.parametrize(
    ("kind", "uuids", "taken"),
    [
        ("cuda", ["new"], 5.0),
        ("cuda", ["new", "other"], 15.0),
        ("cuda", ["old", "new"], None),
        ("cpu", [], None),
    ],
)
def test_energy_is_counted_where_every_device_counts_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, uuids: list[str], taken: float | None
) -> None:
    identity = importlib.import_module("torchlint.harness.child.identity")
    monkeypatch.setitem(sys.modules, "pynvml", _Meter())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    properties = [SimpleNamespace(uuid=uuid) for uuid in uuids]
    monkeypatch.setattr("torch.cuda.get_device_properties", properties.__getitem__)
    device = SimpleNamespace(kind=kind, indices=list(range(len(uuids))))
    assert identity.joules(device) == taken
