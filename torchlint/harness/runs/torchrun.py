"""A run of the script under torchrun: several processes, one trace."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Final, TypeVar

from torchlint.harness.child.hosts import ALL_TRACES
from torchlint.harness.child.rank import JOINED, PID, rank_folder
from torchlint.harness.plan import Launcher, Task
from torchlint.harness.runs import process
from torchlint.harness.trace import Failure, Trace, printed

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
"""How torchrun reports ranks that died: the first one, and all in its summary."""

_SILENT: Final = "the other hosts did not report what their ranks saw"
_T = TypeVar("_T")

_CONSEQUENCE: Final = re.compile(
    r"Connection (closed|reset|refused)|Broken pipe|NCCL|ProcessGroup|Socket|gloo"
    r"|[Tt]imed out|store"
)
"""Errors that follow from the end of another rank."""


@dataclass(frozen=True, slots=True)
class _Ranks:
    """The ranks of this host in one run, by the files in their folders."""

    folders: tuple[Path, ...]
    traces: tuple[Path, ...]
    alone: bool
    """Whether there is no other host."""

    @classmethod
    def of(cls, task: Task, launcher: Launcher) -> _Ranks:
        """Return the ranks that torchrun will start."""
        count = launcher.nproc_per_node
        folders = tuple(rank_folder(Path(task.folder), rank) for rank in range(count))
        traces = tuple(folder / task.trace.name for folder in folders)
        return cls(folders, traces, launcher.nnodes == 1)

    @property
    def joined(self) -> bool:
        """Whether the script made a process group."""
        return any((folder / JOINED).exists() for folder in self.folders)

    @property
    def all_traces(self) -> Path:
        """The file with the traces of the ranks of all hosts in the group."""
        return self.folders[0] / ALL_TRACES

    @property
    def complete(self) -> bool:
        """Whether all traces were written."""
        heard = self.alone or not self.joined or self.all_traces.exists()
        return heard and all(trace.exists() for trace in self.traces)

    def end(self) -> None:
        """End the session of each rank, which includes its loader workers."""
        for folder in self.folders:
            with contextlib.suppress(OSError, ValueError):
                os.killpg(int((folder / PID).read_text(encoding="utf-8")), signal.SIGKILL)

    def read(self) -> dict[int, Trace]:
        """Return the traces that exist, by rank."""
        return {at: _read(trace) for at, trace in enumerate(self.traces) if trace.exists()}


def run(task: Task, launcher: Launcher, *, device: str, timeout: float) -> Trace:
    """Run the script once under torchrun; the trace has `joined` set where its ranks form a group.

    The trace covers all ranks of all hosts. Each rank of this host has its own session, so it
    can be ended with all its children.
    """
    folder = Path(task.folder)
    order = process.write_order(replace(task, launched=True))
    errors = folder / "stderr"
    ranks = _Ranks.of(task, launcher)
    command = [*_AGENT, *launcher.arguments(folder.name), "--log-dir", str(folder / "torchrun")]
    agent = process.start(
        [*command, "--no-python", *process.COMMAND, str(order)],
        folder / "stdout",
        errors,
        process.environment(device, folder, task.mode, crowded=task.crowded),
        task.verbose,
    )
    try:
        in_time = process.wait(agent, lambda: ranks.complete, timeout)
    finally:
        process.end(agent)
        ranks.end()
    if not in_time:
        return Trace("failed", process.why_no_trace(0, False, timeout, errors))
    found = ranks.read()
    failures = [
        (at, ranks.traces[at].stat().st_mtime, trace.failure)
        for at, trace in found.items()
        if trace.failure is not None
    ]
    whole = len(found) == launcher.nproc_per_node
    if not whole:
        failures += _deaths(errors, ranks.folders, set(found))
    if failures:
        return Trace("failed", first_failure(failures, launcher.nproc_per_node))
    if not whole:
        return Trace("failed", process.why_no_trace(agent.returncode or 0, True, timeout, errors))
    return _of_all_hosts(ranks, list(found.values()))


def _of_all_hosts(ranks: _Ranks, own: list[Trace]) -> Trace:
    """Return one trace for the ranks of this host and those of other hosts in the group."""
    if ranks.alone or not ranks.joined:
        return replace(merged(own), joined=ranks.joined)
    if not ranks.all_traces.exists():
        return Trace("failed", Failure("crash", _SILENT))
    traces = json.loads(ranks.all_traces.read_text(encoding="utf-8"))
    return replace(merged([Trace.from_json(trace) for trace in traces]), joined=True)


def _read(trace: Path) -> Trace:
    read = Trace.from_json(json.loads(trace.read_text(encoding="utf-8")))
    return replace(
        process.with_exit_message(read, trace.with_name("stderr")),
        output=printed(trace.with_name("stdout")),
    )


def _deaths(
    errors: Path, ranks: Sequence[Path], reported: set[int]
) -> list[tuple[int, float, Failure]]:
    """Return the ranks that died without a trace, as torchrun saw it."""
    output = errors.read_text(encoding="utf-8", errors="replace")
    found = []
    for seen in (match for pattern in _DIED for match in pattern.finditer(output)):
        rank, code = int(seen["rank"]), int(seen["code"])
        if rank not in reported and code != -signal.SIGTERM:
            why = process.why_no_trace(code, True, 0, ranks[rank] / "stderr")
            found.append((rank, 0.0, why))
    return found


def merged(ranks: Sequence[Trace]) -> Trace:
    """Return one trace for all ranks, none of which failed.

    Times are those of the slowest rank, for which the others wait. A loss is the mean over
    ranks, that of the global batch, since gradients are averaged. Memory is that of the rank
    that needs most.
    """
    times = tuple(fmean(rank.durations) if rank.durations else 0.0 for rank in ranks)
    slowest = ranks[max(range(len(ranks)), key=times.__getitem__)]
    memories = [rank.device_memory for rank in ranks if rank.device_memory is not None]
    return replace(
        slowest,
        ending="full" if all(rank.ending == "full" for rank in ranks) else "ended",
        taken=min(rank.taken for rank in ranks),
        losses=_mean_losses(ranks),
        loss_steps=ranks[0].loss_steps,
        parameters=ranks[0].parameters,
        diverged=len({rank.weights for rank in ranks}) > 1,
        misaligned=next((rank.misaligned for rank in ranks if rank.misaligned), ""),
        syncs=max((rank.syncs for rank in ranks), key=len),
        sync_steps=ranks[0].sync_steps,
        host_memory=max(rank.host_memory for rank in ranks),
        worker_memory=max(rank.worker_memory for rank in ranks),
        device_memory=max(memories, default=None),
        modules=_all(rank.modules for rank in ranks),
        warnings=_all(rank.warnings for rank in ranks),
        diverted=_all(rank.diverted for rank in ranks),
        memories=max(
            (rank.memories for rank in ranks), key=lambda each: sum(held for _, held in each)
        ),
        rank_times=times if any(times) else (),
        output=ranks[0].output,
        profile=ranks[0].profile,
        ran=_all_lines(ranks),
    )


def _mean_losses(ranks: Sequence[Trace]) -> tuple[float, ...]:
    count = min(len(rank.losses) for rank in ranks)
    if any(len(rank.losses) != count for rank in ranks):
        return ranks[0].losses
    return tuple(fmean(losses) for losses in zip(*(rank.losses for rank in ranks), strict=True))


def _all_lines(ranks: Sequence[Trace]) -> dict[str, tuple[int, ...]]:
    files = {path for rank in ranks for path in rank.ran}
    return {path: _all(tuple(rank.ran.get(path, ())) for rank in ranks) for path in files}


def _all(groups: Iterable[tuple[_T, ...]]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


def first_failure(failures: Sequence[tuple[int, float, Failure]], count: int) -> Failure:
    """Return the failure that caused the others, with its rank; each comes with its time."""
    causes = [each for each in failures if not _CONSEQUENCE.search(each[2].message)]
    rank, _, failure = min(causes or failures, key=lambda each: each[1])
    return replace(failure, message=f"rank {rank} of {count}: {failure.message}")
