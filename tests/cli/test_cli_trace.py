"""Findings in the order of what a profiler's trace shows."""

from __future__ import annotations

import json
import runpy
import subprocess

import pytest
from cli_shell import Shell
from profiles.traces import IDLE, LOADING, LOOP, WAITING, WINDOW, Written, loop

from torchlint.config import FORMATS

SCRIPT = """\
import torch

slow()
for batch in loader:
    risky(batch)
slow()
heavy()
"""


def waiting(file: str = "a.py") -> Written:
    """Return a trace of the script above: the device is busy for 300 of 1000 µs.

    It is idle for 500 µs after a wait in `risky`, and for 200 µs while `slow` runs.
    """
    trace = Written()
    trace.frame(f"{file}(1): <module>", 0, 1000)
    trace.frame("risky", 50, 110)
    trace.call("cudaLaunchKernel", 0, 1, 1)
    trace.kernel(0, 100, 1)
    trace.call("cudaStreamSynchronize", 60, 100, 2)
    trace.call("cudaLaunchKernel", 599, 600, 3)
    trace.kernel(600, 700, 3)
    trace.frame("slow", 700, 899)
    trace.call("cudaLaunchKernel", 899, 900, 4)
    trace.kernel(900, 1000, 4)
    return trace


def traced(
    shell: Shell, trace: Written, *arguments: str, name: str = "trace.json"
) -> subprocess.CompletedProcess[str]:
    """Run `check` on the script with a trace."""
    shell.write("a.py", SCRIPT)
    trace.save(shell.folder / name)
    more = () if "--output-format" in arguments else ("--output-format", "concise")
    return shell.check("a.py", "--trace", name, *arguments, *more)


def test_what_lets_the_device_idle_longest_comes_first(quick: Shell) -> None:
    done = traced(quick, waiting())
    assert done.returncode == 1
    assert done.stdout == (
        "a.py:5:5: XY301 [risky-call] medium: `risky` could be faster"
        " (trace: device idle 50 %, 1 wait) (unsafe fix)\n"
        "a.py:3:1: XY201 [slow-call] high: `slow` takes its time: call `fast`"
        " (trace: device idle 20 %, all 2 together) (exact fix)\n"
        "a.py:6:1: XY201 [slow-call] high: `slow` takes its time: call `fast`"
        " (trace: device idle 20 %, all 2 together) (exact fix)\n"
        "a.py:7:1: XY401 [heavy-call] low: `heavy` is heavy: think of another way\n"
        "Found 4 findings: 2 fixable with `torchlint fix --apply`, 1 more with `--unsafe-fixes`.\n"
        "trace: device idle 70% of 1 ms, 3 lines with findings explain 70%.\n"
        "Most worth: XY301 (50% of the trace), XY201 (20% of the trace), XY401."
        " `torchlint verify a.py` proves it.\n"
    )


def test_cheap_findings_are_hidden_and_other_orders_are_kept(quick: Shell) -> None:
    done = traced(quick, waiting(), "--min-cost", "30")
    assert "\n2 findings hidden: measured under 30 % of a step.\n" in done.stdout
    assert "XY201" not in done.stdout.split("Found")[0]
    done = traced(quick, waiting(), "--sort", "code")
    codes = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("a.py")]
    assert codes == ["XY201", "XY201", "XY301", "XY401"]
    done = traced(quick, waiting(), "--sort", "cost")
    assert done.stdout.startswith("a.py:5:5: XY301")


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_the_most_expensive_first(quick: Shell, form: str) -> None:
    done = traced(quick, waiting(), "--output-format", form)
    if form == "sarif":
        results = json.loads(done.stdout)["runs"][0]["results"]
        assert [round(result.get("rank", -1)) for result in results] == [50, 20, 20, -1]
    else:
        places = [done.stdout.index(code) for code in ("XY301", "XY201", "XY401")]
        assert places == sorted(places)


def test_json_has_the_cost(quick: Shell) -> None:
    first, *_, last = json.loads(traced(quick, waiting(), "--output-format", "json").stdout)
    assert first["traced"] == {"share": 0.5, "on_device": True, "waits": 1, "findings": 1}
    assert "traced" not in last


def test_another_version_of_the_file_is_named_and_matched_by_names(quick: Shell) -> None:
    quick.write("train.py", f"# moved\n\n\n\n\n\n\n\n\n\n{LOOP}")
    loop().save(quick.folder / "trace.json")
    done = quick.check("train.py", "--trace", "trace.json", "--output-format", "concise")
    assert "Nothing found" not in done.stderr
    quick.write("train.py", f"# moved\n\n\n\n\n\n\n\n\n\nslow()\n{LOOP}")
    done = quick.check("train.py", "--trace", "trace.json", "--output-format", "concise")
    share = f"{WAITING / WINDOW:.0%}"
    assert f"trace: without a finding: train.py:20 `item` {share}" in done.stdout
    assert (
        "trace: train.py is not the version that was traced, so its lines were found by the names"
        " of functions and calls.\n" in done.stdout
    )


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.sqlite"])
def test_lines_without_a_finding_are_named(quick: Shell, name: str) -> None:
    quick.write("train.py", f"{LOOP}\n\nslow()\n")
    loop().save(quick.folder / name)
    done = quick.check("train.py", "--trace", name, "--output-format", "concise")
    assert (
        f"trace: device idle {IDLE / WINDOW:.0%} of 0.873 ms per step, none of it at a line with"
        " a finding.\n" in done.stdout
    )
    assert f"train.py:9{' `item`' * ('json' in name)} {WAITING / WINDOW:.0%}" in done.stdout
    if "json" in name:
        assert f"train.py:5 `__next__` {LOADING / WINDOW:.0%}" in done.stdout
    assert "not the version" not in done.stdout


def test_a_trace_without_stacks_is_matched_by_the_names_of_operators(quick: Shell) -> None:
    quick.write("train.py", f"{LOOP}\n\nslow()\n")
    loop(stacks=False).save(quick.folder / "trace.json")
    done = quick.check("train.py", "--trace", "trace.json", "--output-format", "concise")
    assert f"train.py:9 `item` {WAITING / WINDOW:.0%}" in done.stdout
    assert "record with `with_stack=True`" in done.stdout


def test_frames_of_libraries_are_not_the_users_files(quick: Shell) -> None:
    for name in ("/usr/lib/python3/site-packages/a.py", "torch/a.py", "b.py"):
        assert "none of it at a line" in traced(quick, waiting(name)).stdout
    for name in ("/cluster/job/a.py", str(quick.folder / "a.py")):
        assert "3 lines with findings explain 70%" in traced(quick, waiting(name)).stdout


def test_a_file_that_is_no_trace_is_one_line_and_exit_2(quick: Shell) -> None:
    quick.write("a.py", SCRIPT)
    quick.write("trace.json", "{}")
    done = quick.check("a.py", "--trace", "trace.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: trace.json is not a trace that can be read: ")
    assert done.stderr.count("\n") == 1
    done = quick.check("a.py", "--trace", "gone.json")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_real_trace_of_torch_has_the_time_at_the_line_of_the_call(quick: Shell) -> None:
    pytest.importorskip("torch")
    script = quick.write("real.py", REAL)
    file = quick.folder / "real.json.gz"
    runpy.run_path(str(script))["main"](str(file))
    done = quick.check(
        "real.py", "--trace", str(file), "--output-format", "json", "--select", "XY201"
    )
    found = json.loads(done.stdout)[0]
    assert found["location"]["row"] == 17
    assert found["traced"]["share"] > 0.4
    assert not found["traced"]["on_device"]


REAL = """\
import time

import torch
from torch.profiler import ProfilerActivity, profile


def slow(x):
    time.sleep(0.02)


def main(file):
    x = torch.ones(4, 4)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        for _ in range(5):
            y = x.sum()
            profiler.step()
            slow(y.item())
    profiler.export_chrome_trace(file)
"""
