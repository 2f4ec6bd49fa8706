"""How long devices were idle, and what the host did meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from profiles.traces import BACKWARD, IDLE, LOADING, WAITING, WINDOW, Written, loop

from torchlint.profiles.idle import Cause, Idle, idle_time
from torchlint.profiles.reading import read_trace

FORMATS = ("trace.json", "trace.json.gz", "trace.sqlite")


def idle(trace: Written, folder: Path, name: str = "trace.json") -> Idle:
    return idle_time(read_trace(trace.save(folder / name)))


def time(found: Idle, *, loads: bool = False, waits: bool = False, inside: str = "") -> float:
    """Return the time of causes of a kind."""
    return sum(
        cost.time
        for cause, cost in found.causes.items()
        if (cause.loads, bool(cause.call)) == (loads, waits)
        and (not inside or any(inside in name for name in cause.stack))
    )


@pytest.mark.parametrize("name", FORMATS)
def test_idle_time_belongs_to_the_loader_and_to_the_wait_before(tmp_path: Path, name: str) -> None:
    found = idle(loop(), tmp_path, name)
    assert (found.devices, found.steps) == (1, 4)
    assert (found.window, found.time) == pytest.approx((WINDOW, IDLE))
    assert time(found, loads=True) == pytest.approx(LOADING)
    assert time(found, waits=True) == pytest.approx(WAITING)
    assert sum(cost.waits for cost in found.causes.values()) == 4


def test_a_copy_and_the_wait_after_it_are_one_wait_at_the_users_call(tmp_path: Path) -> None:
    found = idle(loop(), tmp_path)
    (wait,) = [cause for cause in found.causes if cause.call]
    assert wait.call == "cudaMemcpyAsync"
    assert wait.stack[-2:] == ("item", "train.py(4): main")


def test_without_a_wait_the_host_code_between_launches_is_the_cause(tmp_path: Path) -> None:
    trace = Written()
    trace.frame("train.py(1): main", 0, 1000)
    trace.frame("train.py(9): slow", 100, 580)
    for number, start in enumerate((0, 600), 1):
        trace.call("cudaLaunchKernel", start, start + 5, number)
        trace.kernel(start + 10, start + 110, number)
    found = idle(trace, tmp_path)
    assert (found.window, found.time) == (700, 500)
    assert time(found, inside="slow") == pytest.approx(500, rel=0.15)


def test_gaps_between_kernels_that_were_launched_in_time_have_no_cause(tmp_path: Path) -> None:
    trace = Written()
    for number in range(10):
        trace.call("cudaLaunchKernel", number, number + 1, number + 1)
        trace.kernel(100 + 10 * number, 109 + 10 * number, number + 1)
    found = idle(trace, tmp_path)
    assert found.time == pytest.approx(9)
    assert not found.causes


def test_a_wait_for_a_device_that_is_idle_already_is_not_the_cause(tmp_path: Path) -> None:
    trace = Written()
    trace.frame("train.py(1): main", 0, 1000)
    trace.call("cudaLaunchKernel", 0, 5, 1)
    trace.kernel(10, 100, 1)
    trace.frame("work", 10, 600)
    trace.call("cudaDeviceSynchronize", 700, 701, 2)
    trace.call("cudaLaunchKernel", 790, 795, 3)
    trace.kernel(800, 900, 3)
    found = idle(trace, tmp_path)
    assert time(found, waits=True) == 0
    assert time(found, inside="work") > 400


def test_each_device_has_gaps_of_its_own(tmp_path: Path) -> None:
    trace = Written()
    for device in (0, 1):
        for number, start in enumerate((0, 100)):
            of = 10 * device + number + 1
            trace.call("cudaLaunchKernel", start, start + 1, of)
            trace.kernel(start + 2, start + 52 + 40 * device, of, device=device)
    found = idle(trace, tmp_path)
    assert (found.devices, found.time) == (2, 50 + 10)
    assert found.window == 150 + 190


def test_work_of_the_backward_thread_is_shown_where_the_script_called_it(tmp_path: Path) -> None:
    trace = Written()
    trace.frame("train.py(1): main", 0, 1000)
    trace.frame("torch/_tensor.py(9): backward", 10, 900)
    for number, start in enumerate((0, 600), 1):
        trace.operator("autograd::engine", start, start + 5, BACKWARD)
        trace.call("cudaLaunchKernel", start, start + 5, number, BACKWARD)
        trace.kernel(start + 10, start + 110, number)
    found = idle(trace, tmp_path)
    assert time(found, inside="backward") == found.time == 500


def test_a_trace_without_a_device_has_the_time_of_the_host(tmp_path: Path) -> None:
    trace = Written()
    trace.frame("train.py(1): main", 0, 1000)
    trace.frame("torch/utils/data/dataloader.py(720): __next__", 100, 400)
    trace.frame("item", 500, 600)
    found = idle(trace, tmp_path)
    assert (found.devices, found.window, found.time) == (0, 1000, 1000)
    assert {cause.stack[0]: cost.time for cause, cost in found.causes.items()} == {
        "train.py(1): main": 600,
        "torch/utils/data/dataloader.py(720): __next__": 300,
        "item": 100,
    }
    assert found.causes[Cause(("item", "train.py(1): main"))].time == 100


def test_a_blocking_copy_waits_and_one_from_pinned_memory_does_not(tmp_path: Path) -> None:
    def copied(returns: float) -> int:
        trace = Written()
        trace.call("cudaMemcpyAsync", 0, returns, 1)
        trace.copy(50, 60, 1)
        found = idle(trace, tmp_path)
        return sum(cost.waits for cost in found.causes.values())

    assert (copied(61), copied(8)) == (1, 0)


@pytest.mark.parametrize("name", ["hipMemcpyWithStream", "hipDeviceSynchronize", "cudaMemcpy"])
def test_calls_that_always_wait_are_counted(tmp_path: Path, name: str) -> None:
    trace = Written()
    trace.call(name, 0, 8, 1)
    trace.copy(50, 60, 1)
    assert sum(cost.waits for cost in idle(trace, tmp_path).causes.values()) == 1
