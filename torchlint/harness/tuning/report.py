"""The results of a search, for each setting of a loader."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Final, Literal

from torchlint.harness.pace import LoaderSeen, Pace, Window
from torchlint.harness.trace import Failure

Knob = Literal["num_workers", "prefetch_factor", "pin_memory", "batch_size"]

Value = int | bool | None

_SMALL: Final = 0.01
"""A share of the time that is too small to tell what would be without the rest."""
_DRAWS: Final = 400
_TAIL: Final = 0.025
_LEAST_NOISE: Final = 0.01
"""The difference between two processes that no number of runs removes."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One value of a setting: its throughput and its cost."""

    value: Value
    rate: Rate | None
    """None where every run with the value failed."""
    runs: int = 0
    wait_share: float = 0.0
    cpu: float = 0.0
    """The number of busy processors."""
    memory: int = 0
    device_memory: int | None = None
    steps: int | None = None
    """Batches in one pass over the data."""
    failure: Failure | None = None
    loading: float = 0.0
    """The share of the time that the script's process spent in its loaders."""

    @property
    def alone(self) -> tuple[float, float] | None:
        """Samples per second that loader and network would give alone, without workers.

        None where the loader's share is too small to tell.
        """
        rest = max(_SMALL, 1 - self.wait_share)
        if self.value != 0 or self.rate is None or self.loading < _SMALL:
            return None
        return self.rate.value / self.loading, self.rate.value / rest


@dataclass(frozen=True, slots=True)
class SettingSearch:
    """One setting: the values tried, and the best choice."""

    knob: Knob
    current: Value
    trials: tuple[Trial, ...] = ()
    best: Value = None
    choice: Value = None
    tolerance: float = 0.05
    not_tried: str = ""
    """Why nothing was tried, or why the search ended early."""

    @property
    def changes(self) -> bool:
        """Whether the choice differs from the current value."""
        return bool(self.trials) and self.choice != self.current

    def trial(self, value: Value) -> Trial | None:
        """Return the measurements of a value."""
        found = (each for each in self.trials if each.value == value and each.rate is not None)
        return next((each for each in found if type(each.value) is type(value)), None)

    @property
    def gain(self) -> Rate | None:
        """The rate of the choice over that of the current value, None if one is unknown."""
        now, then = self.trial(self.current), self.trial(self.choice)
        if now is None or then is None or now.rate is None or then.rate is None:
            return None
        if now is then:
            return Rate(1.0, 1.0, 1.0)
        return Rate(
            then.rate.value / now.rate.value,
            then.rate.low / now.rate.high,
            then.rate.high / now.rate.low,
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The place that decides a setting outside of the loader's call, and what to set there."""

    line: int
    text: str
    option: str = ""
    """The command-line option, empty where there is none."""


@dataclass(frozen=True, slots=True)
class LoaderSite:
    """The call that makes the loader, in the source."""

    path: str
    line: int
    label: str
    decided: Mapping[Knob, Decision]
    """The settings that are decided elsewhere, and so cannot be written here."""


@dataclass(frozen=True, slots=True)
class TuningReport:
    """One search: the script, its training loader, and the settings of that."""

    script: str
    args: tuple[str, ...]
    device: str
    torch: str
    cores: int
    loader: LoaderSeen
    others: tuple[LoaderSeen, ...]
    optimizer: str
    learning_rate: float
    runs: int
    seconds: float
    budget: float
    noise: float
    settings: tuple[SettingSearch, ...]
    written: tuple[str, ...] = ()
    """Project files that changed despite the diversion."""

    def setting(self, knob: Knob) -> SettingSearch:
        """Return the results for one setting."""
        return next(each for each in self.settings if each.knob == knob)


@dataclass(frozen=True, slots=True)
class Rate:
    """Samples per second, with a 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TimedRun:
    """A run, and its place in the order of all runs."""

    turn: int
    pace: Pace
    warmup: int

    @cached_property
    def window(self) -> Window:
        """The measured steps."""
        return self.pace.after(self.warmup)


def steady_rate(run: TimedRun, order: Sequence[int] | None = None) -> float:
    """Return the samples per second of one run, including the start of each pass.

    Steps in which a pass begins are rare and long, so the cost of starting workers is spread
    over a whole pass, however many of these the window holds. `order` chooses the steps.
    """
    window = run.window
    steps = range(len(window.seconds)) if order is None else order
    seconds = math.fsum(window.seconds[at] for at in steps)
    samples = sum(window.samples[at] for at in steps)
    return samples / (seconds + _opening(run) * samples) if seconds else 0.0


def _opening(run: TimedRun) -> float:
    """Return the seconds that starting a pass costs per sample."""
    pace = run.pace
    trained = pace.loaders[pace.trained_on] if pace.trained_on is not None else None
    if trained is None or trained.persistent_workers or not trained.length or not pace.opening:
        return 0.0
    usual = fmean(run.window.waits)
    return max(0.0, median(pace.opening) - usual) / trained.length


def noise_of(runs: Sequence[TimedRun]) -> float:
    """Return the noise of the original script, without drift."""
    rates = [steady_rate(run) for run in runs]
    strays = [
        abs(rates[at] / _between(runs, rates, runs[at].turn, without=at) - 1)
        for at in range(1, len(runs) - 1)
    ]
    if not strays and len(rates) > 1:
        strays = [abs(rates[1] / rates[0] - 1) / 2]
    return max(_LEAST_NOISE, median(strays) if strays else 0.0)


def rate_of(runs: Sequence[TimedRun], original: Sequence[TimedRun], seed: int = 0) -> Rate:
    """Return the rate of runs of one value, relative to the nearest runs of the original.

    Whatever slows the machine for a while slows the original too, and cancels out.
    """
    draw = random.Random(seed)
    rates = [steady_rate(run) for run in original]
    usual = median(rates)
    drift = [usual / _between(original, rates, run.turn) for run in runs]
    value = median(steady_rate(run) * by for run, by in zip(runs, drift, strict=True))
    found = []
    for _ in range(_DRAWS):
        chosen = [draw.randrange(len(runs)) for _ in runs]
        found.append(
            median(steady_rate(runs[at], _blocks(runs[at], draw)) * drift[at] for at in chosen)
        )
    found.sort()
    tail = int(_DRAWS * _TAIL)
    noise = noise_of(original) / math.sqrt(len(runs))
    low = min(value, found[tail]) * (1 - noise)
    return Rate(value, low, max(value, found[-1 - tail]) * (1 + noise))


def _between(
    runs: Sequence[TimedRun], rates: Sequence[float], turn: int, without: int | None = None
) -> float:
    """Return the original's rate at a turn, interpolated between its runs around it."""
    points = [
        (run.turn, rate)
        for at, (run, rate) in enumerate(zip(runs, rates, strict=True))
        if at != without
    ]
    after = bisect_right([point[0] for point in points], turn)
    if after == 0 or after == len(points) or points[after - 1][0] == turn:
        return points[max(0, after - 1)][1]
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (turn - left) / (right - left)


def _blocks(run: TimedRun, draw: random.Random) -> list[int]:
    """Draw steps in blocks, since neighbors are not independent."""
    count = len(run.window.seconds)
    length = max(1, round(count ** (1 / 2)))
    drawn: list[int] = []
    while len(drawn) < count:
        start = draw.randrange(count)
        drawn += [(start + more) % count for more in range(length)]
    return drawn[:count]
