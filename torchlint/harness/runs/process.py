"""A run of the script in its own process, and the end of all its children."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from torchlint.harness.plan import COMPARED, Mode, Task
from torchlint.harness.runs.forkserver import Forked, ForkServer, standard_input
from torchlint.harness.trace import Failure, Trace, printed

COMMAND: Final = (
    sys.executable,
    "-c",
    "import sys; sys.path[:1] = filter(None, sys.path[:1]); "
    "from torchlint.harness.child.run import main; main(sys.argv[1])",
)
"""The command that starts a run, followed by the file of its task.

The current folder is left off the path of our own imports.
"""

_DEVICES: Final = """
import sys, torch
kind = sys.argv[1]
module = getattr(torch, kind, None)
count = module.device_count() if module and module.is_available() else 0
print(count, *["cpu"] * (torch.version.cuda is torch.version.hip is None and kind == "cuda"))
"""
"""Prints the number of devices of a kind, and whether torch is a build without them."""

_LINGER: Final = 5.0
"""Seconds that a run may continue after its trace was written."""

_GRACE: Final = 1.0
"""Seconds that the other processes of a run get to end by themselves."""

_STUCK: Final = 30.0
"""Seconds after which a killed process does not end: the driver of a device holds it."""
_HANGS: Final = Failure("timeout", "the device hangs: the run did not end although it was killed")

_ANSWER: Final = 120.0
"""Seconds that torch has to tell which devices it sees."""

_OTHER_PROCESSES: Final = (
    "it starts other processes, whose steps cannot be seen; verify the script that trains"
)

_QUIET: Final = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "CLEARML_OFFLINE_MODE": "1",
}
"""Variables that keep a run from leaving files behind, and make runs alike."""


Running = subprocess.Popen[bytes] | Forked
"""The process of a run, started here or forked by a server."""


def run(
    task: Task, *, device: str, timeout: float, verbose: bool, server: ForkServer | None = None
) -> Trace:
    """Run the script once for `task`, and return the trace.

    A server forks the run where there is one.
    """
    folder = Path(task.folder)
    order = write_order(task)
    output, errors = folder / "stdout", folder / "stderr"
    output.touch()
    errors.touch()
    variables = environment(device, folder, task.mode, crowded=task.crowded)
    process: Running
    if server is not None:
        process = server.start(order, () if verbose else (output, errors), variables)
    else:
        process = start([*COMMAND, str(order)], output, errors, variables, verbose)
    try:
        in_time = wait(process, task.trace.exists, timeout)
    finally:
        gone = end(process)
        if server is not None and not gone:
            server.close()
    if not gone:
        return Trace("failed", _HANGS)
    if not task.trace.exists():
        failure = why_no_trace(process.returncode or 0, in_time, timeout, errors)
        if failure.kind == "timeout" and task.other_processes.exists():
            failure = replace(failure, message=f"{failure.message}; {_OTHER_PROCESSES}")
        return Trace("failed", failure)
    trace = Trace.from_json(json.loads(task.trace.read_text(encoding="utf-8")))
    return replace(with_exit_message(trace, errors), output="" if verbose else printed(output))


def write_order(task: Task) -> Path:
    """Make the folder of a run, with the file of its task."""
    folder = Path(task.folder)
    folder.mkdir(parents=True)
    order = folder / "task.json"
    order.write_text(json.dumps(task.to_json()), encoding="utf-8")
    return order


def start(
    command: Sequence[str], output: Path, errors: Path, variables: dict[str, str], verbose: bool
) -> subprocess.Popen[bytes]:
    """Start a process in its own session."""
    with errors.open("wb") as error_file, output.open("wb") as output_file:
        return subprocess.Popen(
            command,
            stdin=standard_input(),
            stdout=sys.stderr if verbose else output_file,
            stderr=sys.stderr if verbose else error_file,
            env=variables,
            start_new_session=True,
        )


def environment(
    device: str, folder: Path, mode: Mode = "time", *, crowded: bool = False
) -> dict[str, str]:
    """Return the user's environment, with unrequested devices hidden.

    `cuda:1` is the second of the devices that the user may see. Runs for numbers ask cuBLAS for
    a workspace that makes it deterministic; others keep its own, with which it may be faster.
    On a crowded machine, threads that spin while they wait for one another take the processor
    from the one they wait for, and steps last ten times longer; there they sleep.
    """
    variables = {
        **os.environ,
        **_QUIET,
        "MLFLOW_TRACKING_URI": (folder / "mlflow").as_uri(),
        "WANDB_DIR": str(folder),
    }
    if mode in COMPARED:
        variables.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if crowded:
        variables.setdefault("OMP_WAIT_POLICY", "passive")
    if device == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = variables["HIP_VISIBLE_DEVICES"] = ""
    elif device.startswith("cuda:"):
        variables |= _one_device(int(device.partition(":")[2]))
    return variables


def missing_device(device: str, folder: Path) -> str:
    """Return why torch cannot use a device, empty where it can; asks in a process of its own."""
    kind = device.partition(":")[0]
    if kind in ("auto", "cpu"):
        return ""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DEVICES, kind],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=environment(device, folder),
            check=False,
            timeout=_ANSWER,
        )
    except subprocess.TimeoutExpired:
        return f"torch did not tell within {_ANSWER:.0f} s which {kind} devices there are"
    found, _, build = done.stdout.strip().partition(" ")
    if done.returncode or found != "0":
        return ""
    return f"this torch sees no {kind} device" + (" (it is a build for CPUs)" if build else "")


def _one_device(index: int) -> dict[str, str]:
    """Return the variable that leaves one of the user's devices visible, none if there is none."""
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    name = next((name for name in names if os.environ.get(name)), names[0])
    allotted = os.environ.get(name, "").split(",") if os.environ.get(name) else []
    if not allotted:
        return {name: str(index)}
    return {name: allotted[index].strip() if index < len(allotted) else ""}


def wait(process: Running, is_done: Callable[[], bool], timeout: float) -> bool:
    """Wait until the process ends or has reported all; return False on timeout."""
    end = time.monotonic() + timeout
    done_at: float | None = None
    while time.monotonic() < end:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            return True
        if done_at is None and is_done():
            done_at = time.monotonic()
        if done_at is not None and time.monotonic() - done_at > _LINGER:
            return True
    return is_done()


def end(process: Running) -> bool:
    """End the run's whole group, and return whether its first process ended, too.

    The workers may finish, then the rest is killed.
    """
    _signal(process.pid, signal.SIGTERM)
    last = time.monotonic() + _GRACE
    while time.monotonic() < last and _signal(process.pid, 0):
        process.poll()
        time.sleep(0.01)
    _signal(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_STUCK)
    return process.returncode is not None


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group; return False when it is gone."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def with_exit_message(trace: Trace, errors: Path) -> Trace:
    """Add what a script printed before it exited with a code."""
    failure = trace.failure
    last = _last_line(errors)
    if (
        failure is None
        or failure.kind != "exit"
        or not last
        or "exited with code" not in failure.message
    ):
        return trace
    return replace(trace, failure=replace(failure, message=f"{failure.message}: {last}"))


def why_no_trace(code: int, in_time: bool, timeout: float, errors: Path) -> Failure:
    """Return why a run left no trace."""
    if not in_time:
        return Failure("timeout", f"it had not finished its steps after {timeout:g} s (--timeout)")
    if code == -signal.SIGKILL:
        return Failure("memory", "the system killed it, most likely because memory ran out")
    if code < 0:
        return Failure("killed", f"it was ended by {signal.Signals(-code).name}")
    return Failure("exit", _last_line(errors) or f"it exited with code {code}")


def _last_line(errors: Path) -> str:
    """Return the last line that the script wrote to standard error."""
    lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
