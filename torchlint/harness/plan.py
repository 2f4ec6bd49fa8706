"""What is to be measured: a script, its fixed texts, and how long to look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from torchlint.finding import Safety

__all__ = ["BY_HAND", "ORIGINAL", "Launcher", "Mode", "Plan", "Task", "Variant"]

Mode = Literal["numbers", "nudged", "syncs", "time", "timeline", "record", "replay", "pace"]
"""What one run of the script is for: only `time` runs are timed."""


BY_HAND: Final = -1
"""Stands in for the optimizer that counts where a script updates its weights itself."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Fixed texts to lay over the import system, by absolute path, and what they promise."""

    kind: Literal["rule", "all", "kept"]
    codes: tuple[str, ...]
    safety: Safety
    texts: Mapping[str, str]
    because: tuple[str, ...] = ()
    """Why its fixes are not exact, where they are not."""

    @property
    def name(self) -> str:
        """What a person calls it: its codes, or that it is all of them."""
        if not self.codes:
            return "the original"
        return {"rule": " ".join(self.codes), "all": "all fixes", "kept": "kept fixes"}[self.kind]


ORIGINAL = Variant("all", (), Safety.EXACT, {})
"""The script as it is."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """How torchrun starts the processes of a run."""

    nproc_per_node: int
    nnodes: int = 1
    endpoint: str = ""
    """Where the machines meet, `host:port`; one alone needs none."""

    def arguments(self, run: str) -> tuple[str, ...]:
        """Give torchrun's arguments for a run, which has the same name on every machine."""
        meeting: tuple[str, ...] = ("--standalone",)
        if self.nnodes > 1:
            meeting = (
                *("--nnodes", str(self.nnodes), "--rdzv-backend", "c10d"),
                *("--rdzv-endpoint", self.endpoint, "--rdzv-id", f"torchlint-{run}"),
            )
        return (*meeting, "--nproc-per-node", str(self.nproc_per_node))


@dataclass(frozen=True, slots=True)
class Plan:
    """A script with its arguments, and how it is to be measured."""

    script: Path
    args: tuple[str, ...] = ()
    steps: int = 50
    warmup: int = 10
    rounds: int = 3
    seed: int = 0
    device: str = "auto"
    timeout: float = 600.0
    verbose: bool = False
    timeline: bool = False
    """Whether to look, in runs of their own, at what a step is made of."""
    quick: bool = False
    """Whether a first answer is wanted soon: all fixes together, each alone as time allows."""
    launcher: Launcher | None = None
    """How the runs are launched that are made of several processes."""


@dataclass(frozen=True, slots=True)
class Task:
    """All that one run of the script has to know; it travels as JSON."""

    script: str
    args: tuple[str, ...]
    root: str
    """The project's folder: what the script writes below it is diverted."""
    folder: str
    """A folder of this run alone, for its trace and for what was diverted."""
    mode: Mode
    steps: int
    """Steps to look at; 0 for a run from start to end."""
    warmup: int
    seed: int
    texts: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    """How long a run for the pace looks at least, and one for numbers at most; 0 for no limit."""
    leader: int | None = None
    """Which optimizer counts the steps, in the order in which they first stepped, or `BY_HAND`."""
    reference: str = ""
    """A file of final parameters: to be written when it is missing, else compared with."""
    recording: str = ""
    """A folder of initial weights and batches: written by `record`, read by `replay`."""
    shift: int = 0
    """What is added to every seed that the script sets itself."""

    launched: bool = False
    """Whether torchrun starts it: then each rank makes the task its own."""
    verbose: bool = False

    @property
    def trace(self) -> Path:
        """The file in which the run says what it saw."""
        return Path(self.folder, "trace.json")

    @property
    def elsewhere(self) -> Path:
        """The file that is there as soon as the script starts processes of its own."""
        return Path(self.folder, "elsewhere")

    @property
    def shadow(self) -> Path:
        """The folder that holds what the script wrote."""
        return Path(self.folder, "shadow")

    def to_json(self) -> dict[str, Any]:
        """Give the task as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Task:
        """Read a task back."""
        return cls(**{**data, "args": tuple(data["args"])})
