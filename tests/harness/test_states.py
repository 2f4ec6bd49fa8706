"""What the driver tells of a device at both ends of a window, and what is made of it."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness.scripts import PLAIN, run, write

from torchlint.harness.judging.parity import state_doubts, throttled
from torchlint.harness.plan import ORIGINAL, Plan
from torchlint.harness.session import Session
from torchlint.harness.trace import Trace

CALM = {"sm_clock_mhz": 1980, "throttled": [], "other_processes": 0}


NVML = {
    "NVMLError": LookupError,
    "NVML_CLOCK_SM": 0,
    "NVML_TEMPERATURE_GPU": 0,
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlSystemGetDriverVersion": lambda: "580.1",
    "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
    "nvmlDeviceGetClockInfo": lambda handle, which: 1980,
    "nvmlDeviceGetTemperature": lambda handle, which: 61,
    "nvmlDeviceGetPowerManagementLimit": lambda handle: 700_000,
    "nvmlDeviceGetComputeRunningProcesses": lambda handle: [1, 2, 3],
}
"""What the driver answers."""


@pytest.mark.parametrize("name", ["Event", "Throttle"])
def test_a_device_tells_what_slows_it_down_and_who_else_uses_it(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    nvml = SimpleNamespace(**NVML)
    # 0x4 is the usual limit of power.
    setattr(nvml, f"nvmlDeviceGetCurrentClocks{name}Reasons", lambda handle: 0x4 | 0x20)
    identity = importlib.import_module("torchlint.harness.child.identity")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda at: SimpleNamespace(uuid=at))
    assert identity.states(SimpleNamespace(kind="cuda", indices=[0])) == [
        {
            "driver": "580.1",
            "sm_clock_mhz": 1980,
            "temperature_c": 61,
            "power_limit_mw": 700_000,
            "throttled": ["its temperature"],
            "other_processes": 2,
        }
    ]
    assert identity.states(SimpleNamespace(kind="cpu", indices=[])) == []


def timed(last: dict[str, Any], **more: Any) -> Trace:
    return Trace("full", states=(({**CALM},), ({**CALM, **last},)), **more)


@pytest.mark.parametrize(
    ("last", "more", "doubts"),
    [
        ({}, {}, []),
        ({"throttled": ["its temperature"]}, {}, ["throttled"]),
        ({"other_processes": 1}, {}, ["shared-device"]),
        ({"other_processes": 1}, {"joined": True}, []),
        ({"sm_clock_mhz": 1410}, {}, ["clock-moved"]),
        ({"sm_clock_mhz": 1970}, {}, []),
        ({"sm_clock_mhz": None, "throttled": None, "other_processes": None}, {}, []),
    ],
)
def test_a_device_that_was_not_at_rest_is_a_doubt(
    last: dict[str, Any], more: dict[str, Any], doubts: list[str]
) -> None:
    found = state_doubts([timed({}), timed(last, **more), Trace("full")], 0)
    assert [doubt.name for doubt in found] == doubts


def test_a_run_on_a_device_that_was_slowed_down_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, calm = timed({"throttled": ["its temperature"]}), timed({})
    with Session(Plan(write(tmp_path, PLAIN))) as session:
        for runs, expected in (([calm], calm), ([slow, calm], calm), ([slow, slow], slow)):
            left = iter(runs)
            monkeypatch.setattr(session._runner, "run", lambda *run, left=left: next(left))
            assert session._timed(ORIGINAL) is expected
            assert next(left, None) is None
        assert session._repeated == 2
    assert throttled(slow) == ("its temperature",)
    (doubt,) = state_doubts([calm], 2)
    assert doubt.message == (
        "the device was slowed down, 2 runs were made again; later runs were not"
    )


COMPILED = """
    import torch
    from torch import nn

    net = nn.Linear(4, 1)
    again = torch.compile(net, backend="eager", dynamic=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(40):
        again(torch.randn(8 if step < LAST else 6, 4)).mean().backward()
        optimizer.step()
    """


@pytest.mark.parametrize(("last", "graphs"), [(40, 0), (6, 1)])
def test_a_graph_that_is_compiled_within_the_window_is_counted(
    tmp_path: Path, last: int, graphs: int
) -> None:
    trace = run(write(tmp_path, COMPILED.replace("LAST", str(last))), "time", steps=8, warmup=3)
    assert (trace.failure, trace.compiles) == (None, graphs)


@pytest.mark.parametrize(("last", "warmup"), [(10**9, 5), (10, 13)])
def test_the_window_moves_behind_a_compilation(tmp_path: Path, last: int, warmup: int) -> None:
    text = COMPILED.replace("LAST", str(last)).replace("range(40)", "range(1000)")
    script = write(tmp_path, text)
    with Session(Plan(script, steps=8, warmup=5, device="cpu")) as session:
        session.survey()
        assert session._original is not None
        first = replace(session._original.numbers, durations=(0.01,) * 20)
        session._warm_up(first)
        assert session._window == (warmup, 8)
