"""What never answers is given up: a server, a killed run, torch asked for devices."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from harness.scripts import PLAIN, run_by, write

from torchlint.harness.runs import forkserver, process
from torchlint.harness.runs.forkserver import ForkServer, ServerGoneError


class Stuck:
    """A process that the driver of a device holds, whatever kills it."""

    pid = 0
    returncode = None

    def poll(self) -> None:
        """Return nothing: it has not ended."""

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None
        raise subprocess.TimeoutExpired("run", timeout)


def test_a_server_that_does_not_answer_counts_as_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver, "_PATIENCE", 0.5)
    write(tmp_path, "import time\ntime.sleep(600)\n", "slow.py")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    server = ForkServer(("slow",), variables, verbose=False)
    try:
        with pytest.raises(ServerGoneError):
            server.start(tmp_path / "task.json", (), variables)
    finally:
        server.close()


@pytest.mark.parametrize("started", [False, True])
def test_a_server_that_has_started_a_device_forks_nothing(tmp_path: Path, started: bool) -> None:
    text = f"class cuda:\n    @staticmethod\n    def is_initialized():\n        return {started}\n"
    write(tmp_path, text, "torch.py")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    server = ForkServer(("torch",), variables, verbose=False)
    try:
        if started:
            with pytest.raises(ServerGoneError):
                server.start(tmp_path / "task.json", (), variables)
        else:
            assert server.start(tmp_path / "task.json", (), variables).wait(60) != 0
    finally:
        server.close()


@pytest.mark.parametrize("forked", [False, True])
def test_a_run_that_nothing_ends_is_told_as_a_device_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: bool
) -> None:
    stuck, closed = Stuck(), []

    class Server:
        def start(self, *order: Any) -> Stuck:
            return stuck

        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(process, "start", lambda *order: stuck)
    monkeypatch.setattr(process, "_signal", lambda group, number: False)
    trace = run_by(cast(Any, Server()) if forked else None, write(tmp_path, PLAIN), timeout=0.1)
    assert trace.failure is not None
    assert trace.failure.message.startswith("the device hangs")
    assert len(closed) == forked


def test_a_torch_that_does_not_tell_its_devices_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_ANSWER", 0.01)
    said = process.missing_device("xpu", tmp_path)
    assert said == "torch did not tell within 0 s which xpu devices there are"
