"""What a search found out about each setting of a loader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torchlint.harness.pace import LoaderSeen
from torchlint.harness.trace import Failure
from torchlint.harness.tuning.rate import Rate

__all__ = ["Decision", "Knob", "LoaderSite", "Searched", "Trial", "TuningReport", "Value"]

Knob = Literal["num_workers", "prefetch_factor", "pin_memory", "batch_size"]

Value = int | bool | None


@dataclass(frozen=True, slots=True)
class Trial:
    """One value of a setting: how fast the script was with it, and what that cost."""

    value: Value
    rate: Rate | None
    """None where every run with the value failed."""
    runs: int = 0
    wait_share: float = 0.0
    cpu: float = 0.0
    """Processors that were kept busy."""
    memory: int = 0
    device_memory: int | None = None
    steps: int | None = None
    """Batches of one pass over the data."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """One setting: the values that were tried, and the one to take."""

    knob: Knob
    current: Value
    trials: tuple[Trial, ...] = ()
    best: Value = None
    choice: Value = None
    tolerance: float = 0.05
    not_tried: str = ""
    """Why nothing was tried, or why the search ended before its time."""

    @property
    def changes(self) -> bool:
        """Whether another value than the current one is advised."""
        return bool(self.trials) and self.choice != self.current

    def trial(self, value: Value) -> Trial | None:
        """Give what was measured of a value."""
        found = (each for each in self.trials if each.value == value and each.rate is not None)
        return next((each for each in found if type(each.value) is type(value)), None)

    @property
    def gain(self) -> Rate | None:
        """The rate of the advised value over that of the current one, None if one is not known."""
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
    """Who decides a setting where the loader's call does not: the line, its text, what to pass."""

    line: int
    text: str
    option: str = ""
    """The option of the command line, empty where there is none."""


@dataclass(frozen=True, slots=True)
class LoaderSite:
    """The call that makes the loader, as it stands in the source."""

    path: str
    line: int
    label: str
    decided: Mapping[Knob, Decision]
    """The settings that are decided elsewhere, so that they cannot be written here."""


@dataclass(frozen=True, slots=True)
class TuningReport:
    """One search: the script, the loader that it trains from, and its settings."""

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
    settings: tuple[Searched, ...]
    written: tuple[str, ...] = ()
    """Files of the project that changed in spite of the diversion."""

    def setting(self, knob: Knob) -> Searched:
        """Give what was found out about one setting."""
        return next(each for each in self.settings if each.knob == knob)
