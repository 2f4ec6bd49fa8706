"""How far a verification is: what is measured now, and how long the rest will take."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from torchlint.harness.plan import Mode

__all__ = ["HANGS", "Notify", "Schedule", "Stage"]

_SPOKEN: Final[Mapping[Mode, str]] = {
    "numbers": "its numbers",
    "nudged": "how far rounding alone leads",
    "syncs": "its synchronisations",
    "time": "its step time",
    "timeline": "the parts of its steps",
    "record": "its weights and batches, recorded",
    "replay": "its numbers on the original's weights and batches",
}

HANGS: Final = 5
"""How many times the longest run so far another may take before it is ended."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One run that begins, among those that are planned."""

    what: str
    """What is measured, in words."""
    done: int
    total: int
    left: float | None
    """Seconds that the rest will take, None while nothing is known."""


Notify = Callable[[Stage], None]
"""Is told of each run that begins."""


class Schedule:
    """The runs that are still to come, how long runs of their kind took, and when all must end."""

    def __init__(self, notify: Notify | None, seconds: float = math.inf) -> None:
        self._notify = notify
        self._end = time.monotonic() + seconds
        self._done = 0
        self._ahead: Counter[str] = Counter()
        self._supposed: dict[str, list[float]] = {}
        self._took: defaultdict[str, list[float]] = defaultdict(list)

    def expect(self, **runs: int) -> None:
        """Plan so many runs of each mode, and nothing else any more."""
        self._ahead = Counter(runs)

    def suppose(self, mode: Mode, seconds: float) -> None:
        """Say how long runs of a mode will take, until one has shown it."""
        self._supposed[mode] = [seconds]

    @contextmanager
    def run(self, mode: Mode, who: str) -> Iterator[None]:
        """Note one run, whose time makes the guess for the next ones better."""
        if self._notify is not None:
            total = self._done + max(1, self._ahead.total())
            self._notify(Stage(f"{who}: {_SPOKEN[mode]}", self._done, total, self.left))
        began = time.monotonic()
        yield
        self._took[mode].append(time.monotonic() - began)
        self._ahead[mode] = max(0, self._ahead[mode] - 1)
        self._done += 1

    def fits(self, **runs: int) -> bool:
        """Whether so many more runs of each mode will be done in time, as slow as the slowest."""
        needed = sum(
            count * max(self._known(mode), default=self._longest) for mode, count in runs.items()
        )
        return time.monotonic() + needed <= self._end

    @property
    def limit(self) -> float:
        """Give the seconds that a run may take: those that are left, or far more than any took."""
        return max(self._end - time.monotonic(), HANGS * self._longest)

    @property
    def left(self) -> float | None:
        """Give the seconds that the planned runs will take."""
        known = [seconds for times in self._took.values() for seconds in times]
        if not known:
            return None
        return sum(count * fmean(self._known(mode) or known) for mode, count in self._ahead.items())

    def _known(self, mode: str) -> list[float]:
        """Give the seconds of the runs of a mode, or what they are supposed to take."""
        return self._took.get(mode) or self._supposed.get(mode, [])

    @property
    def _longest(self) -> float:
        return max(map(max, self._took.values()), default=0.0)
