"""How far a verification is: what is measured now, and how long the rest will take."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from torchlint.harness.plan import Mode

__all__ = ["Notify", "Schedule", "Stage"]

_SPOKEN: Final[Mapping[Mode, str]] = {
    "numbers": "its numbers",
    "nudged": "how far rounding alone leads",
    "syncs": "its synchronisations",
    "time": "its step time",
    "timeline": "the parts of its steps",
    "record": "its weights and batches, recorded",
    "replay": "its numbers on the original's weights and batches",
}


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
    """The runs that are still to come, and how long runs of their kind took."""

    def __init__(self, notify: Notify | None) -> None:
        self._notify = notify
        self._done = 0
        self._ahead: Counter[Mode] = Counter()
        self._took: defaultdict[Mode, list[float]] = defaultdict(list)

    def expect(self, **runs: int) -> None:
        """Plan so many more runs of each mode; a negative number takes runs off the plan."""
        for mode, count in runs.items():
            self._ahead[mode] += count  # type: ignore[index]

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

    @property
    def left(self) -> float | None:
        """Give the seconds that the planned runs will take."""
        known = [seconds for times in self._took.values() for seconds in times]
        if not known:
            return None
        return sum(count * fmean(self._took[mode] or known) for mode, count in self._ahead.items())
