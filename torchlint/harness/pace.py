"""What one run of a script says of its loaders and of the pace at which it takes samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["LoaderSeen", "Pace", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """The call in the project that made a loader, by where it ends."""

    file: str
    line: int
    """The line on which the call begins, all that Python 3.10 knows."""
    end_line: int = 0
    end_column: int = 0
    """In bytes; both are 0 where only the line is known."""


@dataclass(frozen=True, slots=True)
class LoaderSeen:
    """A loader as it was made, and how the script used it."""

    place: Place | None
    maker: str
    """The package that made it on behalf of the project, empty where the project did."""
    dataset: str
    """The class of the dataset."""
    same_data: int
    """One number for all loaders of one dataset."""
    length: int | None
    """Samples of the dataset, None where it does not say."""
    passes: int | None
    """Batches of one pass, None where that is not known."""
    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool
    batch_size: int | None
    persistent_workers: bool
    draws: int
    steps: int
    """Steps of the optimizer of which this loader gave the last batch."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The steps of one run, with the samples that went into each."""

    seconds: tuple[float, ...]
    samples: tuple[int, ...]
    aside: tuple[bool, ...]
    """Whether a pass over a loader began within the step."""
    waits: tuple[float, ...]
    """Seconds of each step spent waiting for loaders."""
    opening: tuple[float, ...]
    """Seconds from the begin of each pass of the training loader to its first batch."""
    cpu: float
    """Processor seconds of the script and its workers for each second of the window."""
    memory: int
    """Bytes of the script and its workers together, shared ones counted once."""
    optimizer: str
    learning_rate: float
    loaders: tuple[LoaderSeen, ...]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Pace:
        """Read what the run wrote down."""
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
        """The loader whose batches are stepped on, by its place in `loaders`."""
        used = [at for at, seen in enumerate(self.loaders) if seen.steps]
        return max(used, key=lambda at: self.loaders[at].steps, default=None)

    def after(self, warmup: int) -> Window:
        """Give the steps behind the warm-up, less of it where there are few; passes aside."""
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
    """The steps of a run that count."""

    seconds: tuple[float, ...]
    samples: tuple[int, ...]
    waits: tuple[float, ...]
