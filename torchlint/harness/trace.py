"""What one run of a script saw, as its process wrote it down."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

__all__ = ["Failure", "ParameterMatch", "Phase", "PhaseName", "SyncSite", "Trace", "printed"]

Ending = Literal["full", "ended", "failed"]
PhaseName = Literal["data", "forward", "backward", "optimizer"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run did not get where it should: one line, and the place in the user's code."""

    kind: Literal["crash", "input", "memory", "exit", "timeout", "killed", "idle"]
    message: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class SyncSite:
    """A line at which the host waited for the device, with how often it did."""

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
    """How far all of them together are from the reference, relative to its norm."""
    buffers: bool = True
    """Whether what the layers keep beside them is equal: statistics of batch norm, mostly."""
    updates: float | None = None
    """How far apart the first step moved both, relative to how far it moved the reference."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a step, in seconds since the window began."""

    name: PhaseName
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One run of the script: how it ended and what was seen on the way."""

    ending: Ending
    failure: Failure | None = None
    taken: int = 0
    """Steps of the optimizer that counts, warm-up included."""
    leader: int | None = None
    """Which optimizer counts, `BY_HAND` where none does and each `backward()` is a step."""
    durations: tuple[float, ...] = ()
    """Seconds of each step of the window; the device was waited for at both ends."""
    waited: float | None = None
    """Seconds of the window spent waiting for a loader, None where no loader was asked."""
    phases: tuple[Phase, ...] = ()
    """What the steps of the window were made of, where a run was for that."""
    losses: tuple[float, ...] = ()
    loss_steps: tuple[int, ...] = ()
    """For each loss, how many steps had been taken when it was sent backward."""
    parameters: ParameterMatch | None = None
    syncs: tuple[SyncSite, ...] = ()
    sync_steps: int = 0
    device: str = "cpu"
    torch: str = ""
    host_memory: int = 0
    device_memory: int | None = None
    rank_times: tuple[float, ...] = ()
    """Mean seconds of a step of each rank, where there are several."""
    joined: bool = False
    """Whether several ranks made a process group."""
    batch_norm: bool = False
    """Whether a layer takes the statistics of its batch, of which each rank has a share."""
    weights: str = ""
    """A digest of a rank's final parameters."""
    diverged: bool = False
    """Whether ranks ended with parameters of their own."""
    pace: dict[str, Any] | None = None
    """Loaders and samples, where a run was for the pace; `harness.pace.Pace` reads it."""
    modules: tuple[str, ...] = ()
    """Files of the project that the run imported, the script first."""
    warnings: tuple[str, ...] = ()
    diverted: tuple[str, ...] = ()
    processes: bool = False
    """Whether the script started processes of its own, loader workers aside."""
    environment: bool = False
    """Whether the script set environment variables before it imported torch."""
    compiler: bool = False
    """Whether the compiler of torch was imported, be it by an optimizer."""
    misaligned: str = ""
    """Why weights and batches of the original could not be given to this run."""
    output: str = ""
    """A digest of what the script printed."""

    def to_json(self) -> dict[str, Any]:
        """Give the trace as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trace:
        """Read a trace back."""
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
    """Give the digest of what a run printed into a file, nothing where there is none."""
    return hashlib.sha256(output.read_bytes()).hexdigest() if output.exists() else ""
