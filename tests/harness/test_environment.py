"""The variables of a run: which devices it sees, and what its numbers need."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchlint.harness.child.cost import Load
from torchlint.harness.plan import COMPARED, Mode
from torchlint.harness.runs.crowd import crowded_now
from torchlint.harness.runs.process import environment


@pytest.mark.parametrize(
    ("given", "device", "visible"),
    [
        ({}, "cuda:1", {"CUDA_VISIBLE_DEVICES": "1"}),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, "cuda:1", {"CUDA_VISIBLE_DEVICES": "5"}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"}, "cuda:0", {"CUDA_VISIBLE_DEVICES": "GPU-a"}),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, "cuda:2", {"CUDA_VISIBLE_DEVICES": ""}),
        ({"HIP_VISIBLE_DEVICES": "2,3"}, "cuda:1", {"HIP_VISIBLE_DEVICES": "3"}),
        ({"CUDA_VISIBLE_DEVICES": "4,5"}, "auto", {"CUDA_VISIBLE_DEVICES": "4,5"}),
        ({}, "cpu", {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}),
    ],
)
def test_a_device_is_one_of_those_that_the_user_was_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    device: str,
    visible: dict[str, str],
) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = environment(device, tmp_path)
    assert {name: found[name] for name in names if name in found} == visible


@pytest.mark.parametrize("mode", ["numbers", "nudged", "replay", "time", "pace", "syncs"])
def test_only_runs_for_numbers_change_the_workspace_of_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    assert ("CUBLAS_WORKSPACE_CONFIG" in environment("auto", tmp_path, mode)) is (mode in COMPARED)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    assert environment("auto", tmp_path, mode)["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_threads_sleep_while_they_wait_on_a_crowded_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert "OMP_WAIT_POLICY" not in environment("cpu", tmp_path)
    assert environment("cpu", tmp_path, crowded=True)["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert environment("cpu", tmp_path, crowded=True)["OMP_WAIT_POLICY"] == "active"


@pytest.mark.parametrize(
    ("seen", "crowded"),
    [((1.8, 0.1), True), ((1.8, 3.0), False), ((0.1, 0.2), False), (None, False)],
)
def test_a_look_at_the_processors_shows_whether_others_need_them(
    monkeypatch: pytest.MonkeyPatch, seen: tuple[float, float] | None, crowded: bool
) -> None:
    monkeypatch.setattr(Load, "since", lambda load: seen)
    assert crowded_now() is crowded
