"""Whole searches on real scripts."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.scripts import write

from torchlint.cli.loadersettings import find_call
from torchlint.harness import plan as plans
from torchlint.harness.plan import Plan, Task
from torchlint.harness.runs.runner import Runner
from torchlint.harness.session import ScriptError
from torchlint.harness.trace import Trace
from torchlint.harness.tuning.report import TuningReport
from torchlint.harness.tuning.runs import Runs
from torchlint.harness.tuning.session import search
from torchlint.report.paint import Paint
from torchlint.report.tuning import tuning_text

CALL = "from torchlint.cli import main; main()"

WAITING = """
    import time

    import torch
    from torch.utils.data import DataLoader, Dataset

    class Decoded(Dataset):
        def __len__(self):
            return 4096

        def __getitem__(self, index):
            time.sleep(0.002)
            return torch.full((4,), index / 4096)

    def main():
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loader = DataLoader(Decoded(), batch_size=32, shuffle=True)
        for batch in loader:
            optimizer.zero_grad()
            net(batch).pow(2).mean().backward()
            optimizer.step()

    if __name__ == "__main__":
        main()
    """

FRAGILE = """
    import argparse

    import torch
    from torch.utils.data import DataLoader, Dataset, get_worker_info

    class Fragile(Dataset):
        def __len__(self):
            return 1024

        def __getitem__(self, index):
            if get_worker_info() is not None:
                raise OSError("the archive is open elsewhere")
            for _ in range(4):
                torch.randn(400).sort()
            return torch.full((4,), index / 1024)

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    batch = parser.parse_args().batch
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    data = Fragile()
    measured = DataLoader(data, 64)
    for epoch in range(100):
        for x in DataLoader(data, batch_size=batch, num_workers=0):
            if len(x) > 16:
                raise MemoryError
            optimizer.zero_grad()
            net(x).pow(2).mean().backward()
            optimizer.step()
        next(iter(measured))
    """


def searched(script: Path, budget: float, *leave: str) -> tuple[TuningReport, str]:
    """Search the settings of a script's loader, some left alone, and give the text too."""
    with Runs(Plan(script, budget=budget)) as runs:
        call = find_call(runs.survey.made)
        assert call is not None
        fixed: Any = dict.fromkeys(leave, "left alone")
        report = search(runs, call.texts, fixed)
    return report, tuning_text(report, call.site(), (), Paint())


def test_a_dataset_that_waits_gets_workers(tmp_path: Path) -> None:
    script = write(tmp_path, WAITING)
    text = script.read_text()
    report, spoken = searched(script, 60, "prefetch_factor", "batch_size")
    workers = report.setting("num_workers")
    assert workers.current == 0
    assert isinstance(workers.choice, int)
    assert workers.choice >= 2
    assert workers.gain is not None
    assert workers.gain.low > 1.2
    now, then = workers.trial(0), workers.trial(workers.choice)
    assert now is not None
    assert then is not None
    assert now.wait_share > 0.8
    assert now.loading == pytest.approx(now.wait_share, abs=0.1)
    assert now.alone is not None
    assert now.alone[1] > 3 * now.alone[0]
    assert "alone, the loader gives " in spoken
    assert now.runs >= 2
    assert then.memory > now.memory > 0
    assert then.cpu > 0
    assert f"num_workers  0 -> {workers.choice}" in spoken
    assert f"--apply` writes num_workers={workers.choice} at " in spoken
    assert "pin_memory  not tried: the script trains on the CPU" in spoken
    assert script.read_text() == text
    assert list(tmp_path.iterdir()) == [script]


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> tuple[TuningReport, str]:
    """Search a script that bears neither workers nor large batches."""
    return searched(write(tmp_path_factory.mktemp("fragile"), FRAGILE), 60)


def test_values_that_fail_are_told_and_the_search_goes_on(
    fragile: tuple[TuningReport, str],
) -> None:
    report, spoken = fragile
    workers = report.setting("num_workers")
    assert workers.choice == 0
    failure = workers.trials[-1].failure
    assert failure is not None
    assert "the archive is open elsewhere" in failure.message
    assert "fails: " in spoken
    batches = report.setting("batch_size")
    assert [trial.value for trial in batches.trials] == [8, 16, 32]
    assert batches.trials[2].failure is not None
    assert batches.trials[2].failure.kind == "memory"
    assert "runs out of memory: " in spoken
    assert report.setting("prefetch_factor").not_tried == "it has no effect without workers"


def test_the_loader_that_is_stepped_on_is_told_from_the_others(
    fragile: tuple[TuningReport, str],
) -> None:
    report, _ = fragile
    assert report.loader.batch_size == 8
    assert report.loader.length == 1024
    assert report.optimizer == "Adam"
    trial = report.setting("batch_size").trial(16)
    assert trial is not None
    assert trial.steps == 64


BY_HAND = """
    import time

    import torch
    from torch.utils.data import DataLoader, TensorDataset, get_worker_info

    class Stuck(TensorDataset):
        def __getitem__(self, index):
            if STUCK and get_worker_info() is not None:
                time.sleep(1000)
            return super().__getitem__(index)

    net = torch.nn.Linear(4, 1)
    loader = DataLoader(Stuck(torch.randn(512, 4)), batch_size=16)
    while True:
        for (x,) in loader:
            net.zero_grad()
            net(x).pow(2).mean().backward()
            for weight in net.parameters():
                weight.data.add_(weight.grad, alpha=-0.01)
    """


def test_workers_that_hang_are_ended_long_before_the_time_limit(tmp_path: Path) -> None:
    script = write(tmp_path, BY_HAND.replace("STUCK", "True"))
    with Runs(Plan(script, budget=5)) as runs:
        call = find_call(runs.survey.made)
        assert call is not None
        leave: Any = dict.fromkeys(("prefetch_factor", "pin_memory", "batch_size"), "left alone")
        report = search(runs, call.texts, leave)
    workers = report.setting("num_workers")
    assert workers.choice == 0
    failure = workers.trials[-1].failure
    assert failure is not None
    assert failure.kind == "timeout"
    assert "far longer than earlier runs" in failure.message


def test_steps_by_hand_in_a_project_that_is_the_folder_of_temporary_files() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), BY_HAND.replace("STUCK", "False"))
        done = subprocess.run(
            [sys.executable, "-c", CALL, "tune", "train.py", "--budget", "40", "--json"],
            cwd=folder,
            env={**os.environ, "TMPDIR": folder},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert [path.name for path in Path(folder).iterdir()] == ["train.py"]
    assert report["loader"]["optimizer"] is None
    assert report["loader"]["learning_rate"] is None
    assert report["written_in_project"] == []
    workers = report["settings"][0]
    assert [trial["failure"] for trial in workers["trials"][:2]] == [None, None]
    assert [trial["value"] for trial in workers["trials"][:2]] == [0, 2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("print('hello')\n", "no torch optimizer took a step"),
        ("raise ValueError('no data')\n", "ValueError: no data"),
        (
            """
            import torch
            x = torch.nn.Parameter(torch.ones(1))
            optimizer = torch.optim.SGD([x])
            for _ in range(1000):
                x.sum().backward()
                optimizer.step()
            """,
            "no `DataLoader` feeds its training steps",
        ),
    ],
)
def test_a_script_without_a_loader_says_so(tmp_path: Path, text: str, reason: str) -> None:
    plan = Plan(write(tmp_path, text), budget=10)
    with Runs(plan) as runs, pytest.raises(ScriptError) as error:
        _ = runs.survey
    assert reason in error.value.failure.message


@pytest.mark.parametrize(("took", "limit"), [(0.2, 5.0), (3.0, 15.0)])
def test_a_run_may_take_five_times_the_longest_one_and_five_seconds_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took: float, limit: float
) -> None:
    limits = []
    clock = itertools.count(step=took)

    def start(self: Runner, task: Task, limit: float) -> Trace:
        limits.append(limit)
        return Trace("ended", leader=plans.BY_HAND)

    monkeypatch.setattr(Runner, "start", start)
    monkeypatch.setattr(Runner, "serve", lambda self: None)
    with Runs(Plan(write(tmp_path, "import torch\n"), budget=10)) as runs:
        watch = SimpleNamespace(monotonic=lambda: next(clock))
        monkeypatch.setattr("torchlint.harness.tuning.runs.time", watch)
        with pytest.raises(ScriptError):
            _ = runs.survey
    assert limits == [math.inf, pytest.approx(limit)]


IN_MEMORY = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def main():
        x = torch.randn(2048, 8)
        data = TensorDataset(x, x.sum(1, keepdim=True))
        net = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        loader = DataLoader(
            data,
            None,
            sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 64, False),
            num_workers=2,  # surely better
            prefetch_factor=4,
        )
        for epoch in range(10000):
            for x, y in loader:
                optimizer.zero_grad()
                (net(x) - y).pow(2).mean().backward()
                optimizer.step()

    if __name__ == "__main__":
        main()
    """


def test_in_memory_data_wants_no_workers_and_the_source_says_so_when_asked(
    tmp_path: Path,
) -> None:
    script = write(tmp_path, IN_MEMORY)
    text = script.read_text()
    command = ["tune", "train.py", "--budget", "30", "--apply", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", CALL, *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    workers, prefetch, _, batches = document["settings"]
    assert (workers["current"], workers["choice"], workers["written"]) == (2, 0, True)
    assert workers["trials"][0]["samples_per_second"]["value"] > 0
    assert prefetch["not_tried"] == "it has no effect without workers"
    assert batches["not_tried"] == "the script's own sampler makes the batches"
    assert script.read_text() == text.replace("num_workers=2", "num_workers=0").replace(
        "prefetch_factor=4", "prefetch_factor=None"
    )
    assert list(tmp_path.iterdir()) == [script]
