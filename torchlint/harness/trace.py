"""What one run of a script observed, as its process wrote it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

Ending = Literal["full", "ended", "failed"]
PhaseName = Literal["data", "forward", "backward", "optimizer"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed: one line, and the place in the user's code."""

    kind: Literal["crash", "input", "memory", "exit", "timeout", "killed", "idle"]
    message: str
    file: str = ""
    line: int = 0
    shared: bool = False
    """Whether other programs had memory of the device when there was too little."""


@dataclass(frozen=True, slots=True)
class SyncSite:
    """A line at which the host waited for the device, and how often."""

    file: str
    line: int
    call: str
    count: int


@dataclass(frozen=True, slots=True)
class ParameterMatch:
    """How final parameters compare with the reference, tensor by tensor."""

    shapes: bool
    count: int
    equal: int
    distance: float
    """The distance of all parameters from the reference, relative to its norm."""
    buffers: bool = True
    """Whether the buffers of the layers are equal, which are mostly batch norm statistics."""
    updates: float | None = None
    """The distance between the first updates of both, relative to that of the reference."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a step, in seconds since the window began."""

    name: PhaseName
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One run of the script: how it ended and what it did."""

    ending: Ending
    failure: Failure | None = None
    taken: int = 0
    """Steps of the counting optimizer, warm-up included."""
    leader: int | None = None
    """The optimizer that counts; `BY_HAND` where none does and each `backward()` is a step."""
    durations: tuple[float, ...] = ()
    """Seconds of each step of the window, by the device's clock where it has one."""
    waited: float | None = None
    """Seconds of the window in which a loader kept the device waiting, None without a loader."""
    work: tuple[float, ...] = ()
    """Processor seconds of each step of the window, those of loader workers spread evenly."""
    threads: int = 0
    """Threads of torch's operators on the CPU."""
    helpers: int = 0
    """Other processes of the run at the end of the window."""
    at_rest: float | None = None
    """Seconds of the window in which the script's thread neither had nor wanted a processor."""
    others: float | None = None
    """Processors that other programs used during the window, None where that is unknown."""
    free: float | None = None
    """Processors that were idle during the window."""
    drained: float | None = None
    """Seconds that the device still worked when the host had launched the window's last step."""
    phases: tuple[Phase, ...] = ()
    """The phases of the steps of the window, for runs that measure these."""
    losses: tuple[float, ...] = ()
    loss_steps: tuple[int, ...] = ()
    """For each loss, the number of steps taken before its `backward()`."""
    parameters: ParameterMatch | None = None
    syncs: tuple[SyncSite, ...] = ()
    sync_steps: int = 0
    device: str = "cpu"
    device_clock: bool = False
    """Whether times are those of the device's clock, not of the host's."""
    torch: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """The devices of the network by name, with what their speed depends on."""
    host_memory: int = 0
    """The most memory of the script's own process, in bytes."""
    worker_memory: int = 0
    """The memory of loader workers at the end of the window."""
    device_memory: int | None = None
    """The most that the script's tensors took on all devices together, in bytes."""
    memories: tuple[tuple[int, int], ...] = ()
    """For each device in use, the most bytes that tensors took, and that were reserved."""
    states: tuple[tuple[Mapping[str, Any], ...], ...] = ()
    """What the driver told of each device at both ends of the window."""
    compiles: int = 0
    """Graphs that torch's compiler made within the window."""
    copying: float | None = None
    """Seconds of a step in which a device copied from the host or to it, where it was measured."""
    flops: float | None = None
    """Floating-point operations of a step in products and convolutions, where they were counted."""
    peak_flops: float | None = None
    """Operations in a second that a large product reaches on the device."""
    rank_times: tuple[float, ...] = ()
    """Mean seconds of a step for each rank, where there are several."""
    joined: bool = False
    """Whether several ranks formed a process group."""
    precision: str = "float32"
    """The coarsest precision in which the script computed."""
    batch_norm: bool = False
    """Whether a layer uses batch statistics, of which each rank sees a part."""
    weights: str = ""
    """A digest of a rank's final parameters."""
    diverged: bool = False
    """Whether ranks ended with different parameters."""
    pace: dict[str, Any] | None = None
    """Loaders and samples of a run for the pace, read by `harness.pace.Pace`."""
    modules: tuple[str, ...] = ()
    """Project files that the run imported, the script first."""
    warnings: tuple[str, ...] = ()
    diverted: tuple[str, ...] = ()
    processes: bool = False
    """Whether the script started other processes than loader workers."""
    environment: bool = False
    """Whether the script set environment variables before it imported torch."""
    ran: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The watched lines that ran, by file."""
    compiled: bool = False
    """Whether torch's compiler made code of the script's own, whose lines cannot be seen."""
    epoch: int | None = None
    """Batches in the longest pass over a loader, None where that is unknown."""
    epoch_steps: float | None = None
    """Steps in one pass over the loader that feeds them, None where that is unknown."""
    energy: float | None = None
    """Joules that the devices took in each step, None where they do not count them."""
    idle: tuple[tuple[str, int], ...] = ()
    """Places of the fix that the run did not reach."""
    changed: int = 0
    """Places of the fix that a run may reach."""
    profile: str = ""
    """The file of torch's profiler that this run wrote."""
    misaligned: str = ""
    """Why this run could not use the weights and batches of the original."""
    output: str = ""
    """A digest of what the script printed."""

    def to_json(self) -> dict[str, Any]:
        """Return the trace as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trace:
        """Read a trace from JSON."""
        values: dict[str, Any] = {
            item.name: tuple(value) if isinstance(value, list) else value
            for item in fields(cls)
            if (value := data.get(item.name)) is not None
        }
        if data.get("failure"):
            values["failure"] = Failure(**data["failure"])
        if data.get("parameters"):
            values["parameters"] = ParameterMatch(**data["parameters"])
        values["phases"] = tuple(Phase(**phase) for phase in data.get("phases", ()))
        values["syncs"] = tuple(SyncSite(**site) for site in data.get("syncs", ()))
        return cls(**values)


def printed(output: Path) -> str:
    """Return the digest of a file of printed output, empty where nothing was printed."""
    return hashlib.sha256(output.read_bytes()).hexdigest() if output.exists() else ""
