"""The results of a search, for each setting of a loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from torchlint.harness.pace import LoaderSeen
from torchlint.harness.trace import Failure
from torchlint.harness.tuning.rate import Rate

Knob = Literal["num_workers", "prefetch_factor", "pin_memory", "batch_size"]

Value = int | bool | None

_SMALL: Final = 0.01
"""A share of the time that is too small to tell what would be without the rest."""


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
