"""The progress of a verification: what is measured now, and how long the rest will take."""

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

_MODE_NAMES: Final[Mapping[Mode, str]] = {
    "numbers": "its numbers",
    "nudged": "its drift under rounding alone",
    "syncs": "its host syncs",
    "time": "its step time",
    "profile": "a trace of its steps",
    "timeline": "the phases of its steps",
    "record": "recording its weights and batches",
    "replay": "its numbers on the original's weights and batches",
    "nudged-replay": "its drift under rounding on the original's weights and batches",
}

HANGS: Final = 5
"""The time limit of a run, as a multiple of the longest run so far."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One run that begins, out of those that are planned."""

    what: str
    """What is measured, in words."""
    done: int
    total: int
    left: float | None
    """Seconds that the rest will take, None while that is unknown."""


Notify = Callable[[Stage], None]
"""A callback for each run that begins."""


class Schedule:
    """The remaining runs, the durations of earlier ones, and the deadline."""

    def __init__(self, notify: Notify | None, seconds: float = math.inf) -> None:
        self._notify = notify
        self._end = time.monotonic() + seconds
        self._done = 0
        self._ahead: Counter[str] = Counter()
        self._assumed: dict[str, list[float]] = {}
        self._took: defaultdict[str, list[float]] = defaultdict(list)

    def expect(self, **runs: int) -> None:
        """Plan so many runs of each mode, in place of any earlier plan."""
        self._ahead = Counter(runs)

    def assume(self, mode: Mode, seconds: float) -> None:
        """Assume a duration for runs of a mode, until one was measured."""
        self._assumed[mode] = [seconds]

    @contextmanager
    def run(self, mode: Mode, who: str) -> Iterator[None]:
        """Record one run, whose duration improves the estimate for later ones."""
        if self._notify is not None:
            total = self._done + max(1, self._ahead.total())
            self._notify(Stage(f"{who}: {_MODE_NAMES[mode]}", self._done, total, self.left))
        began = time.monotonic()
        yield
        self._took[mode].append(time.monotonic() - began)
        self._ahead[mode] = max(0, self._ahead[mode] - 1)
        self._done += 1

    def fits(self, **runs: int) -> bool:
        """Return whether so many more runs of each mode fit before the deadline."""
        needed = sum(
            count * max(self._known(mode), default=self._longest) for mode, count in runs.items()
        )
        return time.monotonic() + needed <= self._end

    @property
    def remaining(self) -> float:
        """The seconds until the deadline."""
        return self._end - time.monotonic()

    @property
    def limit(self) -> float:
        """The time limit of a run in seconds: the time left, or a multiple of the longest run."""
        return max(self.remaining, HANGS * self._longest)

    @property
    def ahead(self) -> int:
        """The number of runs that are planned."""
        return self._ahead.total()

    @property
    def left(self) -> float | None:
        """The seconds that the planned runs will take."""
        known = [seconds for times in self._took.values() for seconds in times]
        if not known:
            return None
        return sum(count * fmean(self._known(mode) or known) for mode, count in self._ahead.items())

    @property
    def rest(self) -> float | None:
        """The same, or the time until the deadline if that is less."""
        return None if self.left is None else max(0.0, min(self.left, self.remaining))

    def _known(self, mode: str) -> list[float]:
        """Return the durations of earlier runs of a mode, or the assumed one."""
        return self._took.get(mode) or self._assumed.get(mode, [])

    @property
    def _longest(self) -> float:
        return max(map(max, self._took.values()), default=0.0)
