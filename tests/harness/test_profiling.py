"""Traces that torch's profiler writes of a script that does not use it."""

from __future__ import annotations

import gzip
import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from harness.scripts import PLAIN, run, write

from torchlint.harness.plan import ORIGINAL, Plan
from torchlint.harness.runs.runner import Runner
from torchlint.profiles.idle import idle_time
from torchlint.profiles.reading import read_trace

LOADING = """
    import time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 200

        def __getitem__(self, index):
            time.sleep(0.005)
            return torch.full((4,), float(index))

    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x in DataLoader(Slow(), batch_size=4):
        optimizer.zero_grad()
        net(x).mean().backward()
        optimizer.step()
    """
PROFILED = """
    import torch
    from torch import nn

    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with torch.profiler.profile():
        for step in range(40):
            net(torch.randn(8, 4)).mean().backward()
            optimizer.step()
    """


def project(folder: Path, text: str) -> Path:
    """Write a script into a folder beside its trace, since what it writes there is diverted."""
    (folder / "project").mkdir()
    return write(folder / "project", text)


def events(file: Path) -> list[dict[str, Any]]:
    document = json.loads(gzip.decompress(file.read_bytes()))
    return [event for event in document["traceEvents"] if event.get("ph") == "X"]


def test_steps_and_phases_have_names_and_python_has_frames(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    trace = run(project(tmp_path, PLAIN), "profile", steps=5, warmup=2, profile=str(file))
    assert trace.failure is None
    assert (trace.profile, trace.taken) == (str(file), 7)
    named = [event["name"] for event in events(file) if event["cat"] == "user_annotation"]
    assert [name for name in named if name.startswith("ProfilerStep#")] == [
        f"ProfilerStep#{number}" for number in (2, 3, 4, 5, 6, 7)
    ]
    for phase in ("forward", "backward", "optimizer"):
        assert named.count(phase) == 5
    frames = [event["name"] for event in events(file) if event["cat"] == "python_function"]
    assert any(name.startswith("train.py(") for name in frames)
    assert trace.warnings == ()


def test_the_trace_shows_what_the_steps_wait_for(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    run(project(tmp_path, LOADING), "profile", steps=5, warmup=2, profile=str(file))
    found = idle_time(read_trace(file))
    loading = sum(cost.time for cause, cost in found.causes.items() if cause.loads)
    assert loading / found.window > 0.5


def test_a_script_with_a_profiler_of_its_own_ends_without_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "trace.json.gz"
    trace = run(project(tmp_path, PROFILED), "profile", steps=5, warmup=2, profile=str(file))
    assert (trace.failure, trace.profile) == (None, "")
    assert not file.exists()


def test_the_trace_is_found_where_the_project_is_the_folder_of_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with closing(Runner(Plan(write(tmp_path, PLAIN), device="cpu"), None)) as runner:
        trace = runner.run(ORIGINAL, "profile")
        assert trace.profile
        assert events(Path(trace.profile))
