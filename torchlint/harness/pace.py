"""Loaders and throughput, as one run of a script reports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Place:
    """The call in the project that made a loader, identified by where it ends."""

    file: str
    line: int
    """The line on which the call begins; Python 3.10 knows no more."""
    end_line: int = 0
    end_column: int = 0
    """A byte offset; this and `end_line` are 0 where only the line is known."""


@dataclass(frozen=True, slots=True)
class LoaderSeen:
    """A loader, and how the script used it."""

    place: Place | None
    maker: str
    """The package that made the loader for the project, empty where the project made it itself."""
    dataset: str
    """The class of the dataset."""
    same_data: int
    """A number shared by all loaders of one dataset."""
    length: int | None
    """Samples of the dataset, None where it has no length."""
    passes: int | None
    """Batches in one pass, None where that is unknown."""
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    batch_size: int | None
    persistent_workers: bool
    draws: int
    steps: int
    """Optimizer steps whose last batch came from this loader."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The steps of one run, with the samples that each consumed."""

    seconds: tuple[float, ...]
    samples: tuple[int, ...]
    aside: tuple[bool, ...]
    """Whether a pass over a loader began within each step."""
    waits: tuple[float, ...]
    """Seconds that each step waited for loaders."""
    opening: tuple[float, ...]
    """Seconds from the start of each pass over the training loader to its first batch."""
    cpu: float
    """CPU seconds of the script and its workers per second of the window."""
    memory: int
    """Bytes of the script and its workers together, with shared memory counted once."""
    optimizer: str
    learning_rate: float
    loaders: tuple[LoaderSeen, ...]
    loading: float = 0.0
    """The share of the window in which the script's process was in its loaders."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Pace:
        """Read the JSON that a run wrote."""
        loaders = tuple(
            LoaderSeen(**{**seen, "place": Place(**seen["place"]) if seen["place"] else None})
            for seen in data["loaders"]
        )
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        values["loaders"] = loaders
        return cls(**values)

    @property
    def trained_on(self) -> int | None:
        """The loader that feeds the training steps, as an index into `loaders`."""
        used = [at for at, seen in enumerate(self.loaders) if seen.steps]
        return max(used, key=lambda at: self.loaders[at].steps, default=None)

    def after(self, warmup: int) -> Window:
        """Return the steps after the warm-up, which is shortened where there are few steps."""
        first = min(warmup, len(self.seconds) // 4)
        kept = [at for at in range(first, len(self.seconds)) if not self.aside[at]]
        if not kept:
            kept = list(range(first, len(self.seconds)))
        return Window(
            tuple(self.seconds[at] for at in kept),
            tuple(self.samples[at] for at in kept),
            tuple(self.waits[at] for at in kept),
        )


@dataclass(frozen=True, slots=True)
class Window:
    """The measured steps of a run."""

    seconds: tuple[float, ...]
    samples: tuple[int, ...]
    waits: tuple[float, ...]
