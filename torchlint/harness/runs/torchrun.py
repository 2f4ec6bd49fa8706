"""A run of the script under torchrun: several processes, one trace."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from torchlint.harness.child.rank import JOINED, PID, rank_folder
from torchlint.harness.plan import Launcher, Task
from torchlint.harness.runs import process
from torchlint.harness.runs.merge import first_failure, merged
from torchlint.harness.trace import Failure, Trace

__all__ = ["run"]

_AGENT: Final = (
    sys.executable,
    "-c",
    "import sys; sys.path[:1] = filter(None, sys.path[:1]); "
    "from torchlint.harness.child.agent import agent; agent(sys.argv[1:])",
)
_DIED: Final = (
    re.compile(r"exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)"),
    re.compile(r"\(local_rank: (?P<rank>\d+)\)\s+exitcode\s*: (?P<code>-?\d+)"),
)
"""How torchrun tells of the first rank that it saw end, and of all in its summary."""


def run(task: Task, launcher: Launcher, *, device: str, timeout: float) -> Trace:
    """Run the script once under torchrun; the trace says `joined` where its ranks found together.

    Ranks have sessions of their own, so each is ended by itself, with all that it started.
    """
    folder = Path(task.folder)
    order = process.write_order(replace(task, launched=True))
    errors = folder / "stderr"
    ranks = [rank_folder(folder, rank) for rank in range(launcher.nproc_per_node)]
    command = [*_AGENT, *launcher.arguments(folder.name), "--no-python", *process.COMMAND]
    agent = process.start(
        [*command, str(order)],
        folder / "stdout",
        errors,
        process.environment(device, folder),
        task.verbose,
    )
    traces = [rank / task.trace.name for rank in ranks]

    def told() -> bool:
        return all(trace.exists() for trace in traces)

    try:
        in_time = process.wait(agent, told, timeout)
    finally:
        process.end(agent)
        for rank in ranks:
            _end(rank / PID)
    if not in_time:
        return Trace("failed", process.why_no_trace(0, False, timeout, errors))
    found = {at: _read(trace) for at, trace in enumerate(traces) if trace.exists()}
    failures = [
        (at, traces[at].stat().st_mtime, trace.failure)
        for at, trace in found.items()
        if trace.failure is not None
    ]
    if len(found) < len(ranks):
        failures += _deaths(errors, ranks, set(found))
    if failures:
        return Trace("failed", first_failure(failures, len(ranks)))
    if len(found) < len(ranks):
        return Trace("failed", process.why_no_trace(agent.returncode or 0, True, timeout, errors))
    joined = any((rank / JOINED).exists() for rank in ranks)
    return replace(merged([found[at] for at in range(len(ranks))]), joined=joined)


def _read(trace: Path) -> Trace:
    read = Trace.from_json(json.loads(trace.read_text(encoding="utf-8")))
    output = trace.with_name("stdout")
    printed = hashlib.sha256(output.read_bytes()).hexdigest() if output.exists() else ""
    return replace(process.with_exit_message(read, trace.with_name("stderr")), output=printed)


def _deaths(errors: Path, ranks: list[Path], told: set[int]) -> list[tuple[int, float, Failure]]:
    """Give the ranks that died without a word, as torchrun saw it."""
    said = errors.read_text(encoding="utf-8", errors="replace")
    found = []
    for seen in (match for pattern in _DIED for match in pattern.finditer(said)):
        rank, code = int(seen["rank"]), int(seen["code"])
        if rank not in told and code != -signal.SIGTERM:
            why = process.why_no_trace(code, True, 0, ranks[rank] / "stderr")
            found.append((rank, 0.0, why))
    return found


def _end(file: Path) -> None:
    """End the session of a rank: its loader workers belong to it."""
    with contextlib.suppress(OSError, ValueError):
        os.killpg(int(file.read_text(encoding="utf-8")), signal.SIGKILL)
