"""What to measure: a script, its fixed files, and for how long."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from torchlint.finding import Safety

Mode = Literal[
    "numbers",
    "nudged",
    "syncs",
    "time",
    "timeline",
    "record",
    "replay",
    "nudged-replay",
    "pace",
    "profile",
]
"""What one run measures; only `time` runs are timed."""


COMPARED: Final[frozenset[Mode]] = frozenset(
    {"numbers", "nudged", "record", "replay", "nudged-replay"}
)
"""Modes whose losses are compared."""

BY_HAND: Final = -1
"""Stands for the counting optimizer where a script updates its weights itself."""


TEMPORARY: Final = "pymp-"
"""How multiprocessing names its temporary folders, which a killed process leaves behind."""


Kind = Literal["rule", "all", "kept", "tree"]
"""What a variant is: the fixes of a rule, several together, or the files as they are."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Fixed texts by absolute path, which replace the files on import, and their safety class."""

    kind: Kind
    codes: tuple[str, ...]
    safety: Safety
    texts: Mapping[str, str]
    because: tuple[str, ...] = ()
    """Why the fixes are not exact, where they are not."""
    absent: tuple[str, ...] = ()
    """Files on disk that this variant does not have."""
    judged: bool = True
    """Whether numbers other than the original's count against the variant."""

    @property
    def name(self) -> str:
        """The name for reports: the codes, or that it is all fixes."""
        if self.kind == "tree":
            return "the working tree"
        if not self.codes:
            return "the original"
        return {"rule": " ".join(self.codes), "all": "all fixes", "kept": "kept fixes"}[self.kind]

    def text(self, path: str) -> str | None:
        """Return the text of a file, None where this variant has no such file."""
        if path in self.texts:
            return self.texts[path]
        if path in self.absent or not Path(path).is_file():
            return None
        return Path(path).read_text(encoding="utf-8", errors="replace")


ORIGINAL = Variant("all", (), Safety.EXACT, {})
"""The unchanged script."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """How torchrun starts the processes of a run."""

    nproc_per_node: int
    nnodes: int = 1
    endpoint: str = ""
    """Where the hosts meet, as `host:port`; one host needs none."""

    def arguments(self, run: str) -> tuple[str, ...]:
        """Return torchrun's arguments for a run, whose name is the same on every host."""
        meeting: tuple[str, ...] = ("--standalone",)
        if self.nnodes > 1:
            meeting = (
                *("--nnodes", str(self.nnodes), "--rdzv-backend", "c10d"),
                *("--rdzv-endpoint", self.endpoint, "--rdzv-id", f"torchlint-{run}"),
            )
        return (*meeting, "--nproc-per-node", str(self.nproc_per_node))


@dataclass(frozen=True, slots=True)
class Plan:
    """A script with its arguments, and how to measure it."""

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
    """Whether to measure the phases of a step, in separate runs."""
    budget: float = math.inf
    """Seconds for all runs; under a limit all fixes come first, then each alone as time allows."""
    most_rounds: int = 0
    """The most rounds, where noise asks for more than `rounds` and there is time for them."""
    launcher: Launcher | None = None
    """How to launch runs of several processes."""
    module: str = ""
    """The script's name as a module, where it is started as `python -m` does."""

    @property
    def limited(self) -> bool:
        """Whether there is a budget."""
        return self.budget < math.inf


@dataclass(frozen=True, slots=True)
class Task:
    """Everything that one run of the script needs to know; sent as JSON."""

    script: str
    args: tuple[str, ...]
    root: str
    """The project's folder; files that the script writes below it are diverted."""
    folder: str
    """A folder for this run only, which holds its trace and its diverted files."""
    mode: Mode
    steps: int
    """Steps to watch; 0 for a run from start to end."""
    warmup: int
    seed: int
    texts: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    """Files that cannot be imported in this run."""
    seconds: float = 0.0
    """The least duration of a run for the pace, and the most of one for numbers; 0 for no limit."""
    leader: int | None = None
    """The optimizer that counts the steps, numbered by first step, or `BY_HAND`."""
    reference: str = ""
    """A file of final parameters: written if missing, else compared with."""
    profile: str = ""
    """The file that `profile` writes, empty for a rank that need not."""
    recording: str = ""
    """A folder of initial weights and batches: written by `record`, read by `replay`."""
    module: str = ""
    """The script's name where it is run as a module, from the working directory."""
    shift: int = 0
    """The offset added to every seed that the script sets."""

    lenient: bool = False
    """Whether runs for numbers may use operators without a deterministic kernel."""

    watched: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Lines of the texts, by file, to notice when they run."""
    crowded: bool = False
    """Whether other programs leave no processor free, so that waiting threads must not spin."""
    launched: bool = False
    """Whether torchrun starts the run, so that each rank adapts the task to itself."""
    verbose: bool = False

    @property
    def trace(self) -> Path:
        """The file in which the run writes its trace."""
        return Path(self.folder, "trace.json")

    @property
    def ran(self) -> Path:
        """The file in which watched lines are written down as they run."""
        return Path(self.folder, "ran")

    @property
    def made(self) -> Path:
        """The file that names the temporary folders of multiprocessing."""
        return Path(self.folder, "made")

    @property
    def other_processes(self) -> Path:
        """The file that appears as soon as the script starts other processes."""
        return Path(self.folder, "other_processes")

    @property
    def shadow(self) -> Path:
        """The folder that holds the files that the script wrote."""
        return Path(self.folder, "shadow")

    def to_json(self) -> dict[str, Any]:
        """Return the task as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Task:
        """Read a task from JSON."""
        return cls(**{**data, "args": tuple(data["args"]), "absent": tuple(data["absent"])})
