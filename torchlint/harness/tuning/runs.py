"""Runs of the real script with other settings, in turns with the script as it is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from types import TracebackType
from typing import Final

import psutil

from torchlint.harness.pace import LoaderSeen, Pace
from torchlint.harness.plan import BY_HAND, Plan, Task
from torchlint.harness.runs import tree
from torchlint.harness.runs.runner import Runner
from torchlint.harness.session import ScriptError
from torchlint.harness.stage import HANGS
from torchlint.harness.trace import Failure, Trace
from torchlint.harness.tuning.rate import Rate, Timed, noise_of, rate_of
from torchlint.harness.tuning.report import Trial, Value

__all__ = ["Edit", "Progress", "Runs", "Survey", "TuningPlan", "Values"]

Values = Mapping[str, Value]
Edit = Callable[[Values], Mapping[str, str]]
"""Gives the texts of the project's files with the loader's settings changed."""

_SETTLE: Final = 3
_LEAST_STEPS: Final = 16
_FEWEST: Final = 6
"""Steps without which a run says nothing."""
_RUNS_FIT: Final = 60
_WINDOW: Final = (1.0, 5.0)
"""Seconds that a run is watched, at least and at most."""
_BESIDE: Final = 2
"""Runs between two of the original."""
_PREFETCH: Final = 2
"""What torch takes where there are workers and nothing is said."""

_Key = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """A script with its arguments, and how long the search may take."""

    script: Path
    args: tuple[str, ...] = ()
    budget: float = 300.0
    seed: int = 0
    device: str = "auto"
    timeout: float = 600.0
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """What is being run, and how far the search is: seconds gone, and seconds left at most."""

    what: str
    gone: float
    left: float


@dataclass(frozen=True, slots=True)
class Survey:
    """What one run of the script as it is showed."""

    trace: Trace
    pace: Pace
    loader: LoaderSeen

    @property
    def made(self) -> tuple[LoaderSeen, ...]:
        """The loader that is trained from, and behind it the others of the same data."""
        alike = (each for each in self.pace.loaders if each.same_data == self.loader.same_data)
        return (self.loader, *alike)

    def current(self, knob: str) -> Value:
        """Give the value that a setting has, torch's own where nothing is said."""
        value: Value = getattr(self.loader, knob)
        return _PREFETCH if knob == "prefetch_factor" and value is None else value


class Runs:
    """The runs of one search, in a folder that is gone when it is over."""

    def __init__(self, plan: TuningPlan, notify: Callable[[Progress], None] | None = None) -> None:
        self.plan = plan
        self.begin = time.monotonic()
        self.count = 0
        self._runner = Runner(
            Plan(
                plan.script,
                plan.args,
                seed=plan.seed,
                device=plan.device,
                timeout=plan.timeout,
                verbose=plan.verbose,
            ),
            None,
        )
        self._before = tree.snapshot(self._runner.root, self._runner.folder)
        self._notify = notify
        self._window = min(max(plan.budget / _RUNS_FIT, _WINDOW[0]), _WINDOW[1])
        self._survey: Survey | None = None
        self._leader: int | None = None
        self._timed: dict[_Key, list[Timed]] = {}
        self._traces: dict[_Key, Trace] = {}
        self._walls: list[float] = []
        self._since = 0

    def __enter__(self) -> Runs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.close()

    # -- the script as it is --------------------------------------------------

    @property
    def survey(self) -> Survey:
        """One run of the script as it is; raises `ScriptError` where there is nothing to tune."""
        if self._survey is None:
            trace = self._run((), {}, "first run of the script")
            if trace.leader == BY_HAND:
                self._leader = BY_HAND
                trace = self._run((), {}, "first run of the script, its steps known")
            self._survey = _surveyed(trace)
            self._runner.serve(self._survey.trace)
        return self._survey

    @property
    def original(self) -> list[Timed]:
        """The timed runs of the script as it is."""
        return self._timed.get((), [])

    @property
    def noise(self) -> float:
        """How far the script as it is strays from itself."""
        return noise_of(self.original)

    @property
    def written(self) -> tuple[str, ...]:
        """What changed in the project in spite of the diversion."""
        return tree.changes(self._before, self._runner.root, self._runner.folder)

    def run_original(self) -> None:
        """Time the script as it is; raises `ScriptError` if it fails now."""
        if not self._timed_once((), {}, "the script as it is"):
            raise ScriptError(self._traces[()].failure or Failure("idle", "it took too few steps"))
        self._since = 0

    # -- with other settings --------------------------------------------------

    def fits(self, share: float) -> bool:
        """Whether one more run is done before that share of the budget is used up."""
        expected = median(self._walls[1:][-4:] or self._walls)
        return time.monotonic() - self.begin + expected <= share * self.plan.budget

    def measure(self, values: Values, edit: Edit, what: str) -> bool:
        """Time the script with these settings; False where it fails with them.

        Between two runs of the original there are never more than a few others.
        """
        key = self._key(values)
        if not key:
            self.run_original()
            return True
        if self._since >= _BESIDE:
            self.run_original()
        self._since += 1
        return self._timed_once(key, edit(dict(key)), what)

    def close_turn(self) -> None:
        """Time the original behind the last of the others."""
        if self._since:
            self.run_original()

    def times(self, values: Values) -> int:
        """Say how often these settings were timed."""
        return len(self._timed.get(self._key(values), ()))

    def rate(self, values: Values) -> Rate | None:
        """Give the samples a second with these settings, None where they were not timed."""
        runs = self._timed.get(self._key(values))
        return rate_of(runs, self.original) if runs else None

    def trial(self, value: Value, values: Values) -> Trial | None:
        """Give all that is known of these settings, None where they were never run."""
        key = self._key(values)
        runs, trace = self._timed.get(key, []), self._traces.get(key)
        if trace is None:
            return None
        if not runs:
            failure = trace.failure or Failure("idle", "it took too few steps to time")
            return Trial(value, None, failure=failure)
        last = runs[-1].pace
        trained = last.loaders[last.trained_on] if last.trained_on is not None else None
        return Trial(
            value,
            self.rate(values),
            runs=len(runs),
            wait_share=fmean(sum(run.window.waits) / sum(run.window.seconds) for run in runs),
            cpu=median(run.pace.cpu for run in runs),
            memory=max(run.pace.memory for run in runs),
            device_memory=trace.device_memory,
            steps=trained.passes if trained else None,
        )

    def memory_fits(self, more: int) -> bool:
        """Whether the machine has so much memory left."""
        return bool(more < psutil.virtual_memory().available)

    def _key(self, values: Values) -> _Key:
        """Give settings without those that are what they are anyway."""
        survey = self.survey
        kept = {knob: value for knob, value in values.items() if value != survey.current(knob)}
        if values.get("num_workers", survey.loader.num_workers) == 0:
            kept.pop("prefetch_factor", None)
        return tuple(sorted(kept.items(), key=lambda item: item[0]))

    def _timed_once(self, key: _Key, texts: Mapping[str, str], what: str) -> bool:
        trace = self._run(key, texts, what)
        self._traces[key] = trace
        pace = Pace.from_json(trace.pace) if trace.pace else None
        if trace.failure is not None or pace is None or len(pace.seconds) < _FEWEST:
            return False
        self._timed.setdefault(key, []).append(Timed(self.count, pace, self._warmup(key)))
        return True

    # -- one run --------------------------------------------------------------

    def _run(self, key: _Key, texts: Mapping[str, str], what: str) -> Trace:
        plan = self.plan
        gone = time.monotonic() - self.begin
        if self._notify is not None:
            self._notify(Progress(what, gone, max(0.0, plan.budget - gone)))
        self.count += 1
        surveyed = self._survey
        current = surveyed.loader.num_workers if surveyed else 0
        workers = int(dict(key).get("num_workers", current) or 0)
        task = Task(
            script=str(self._runner.script),
            args=plan.args,
            root=str(self._runner.root),
            folder=str(self._runner.folder / f"run-{self.count}"),
            mode="pace",
            steps=max(_LEAST_STEPS, 4 * workers),
            seconds=self._window,
            warmup=self._warmup(key) if surveyed else _SETTLE,
            seed=plan.seed,
            texts=texts,
            leader=surveyed.trace.leader if surveyed else self._leader,
        )
        limit = HANGS * max(self._walls) if self._walls else math.inf
        started = time.monotonic()
        trace = self._runner.start(task, limit)
        if trace.failure is not None and trace.failure.kind == "timeout":
            return trace
        self._walls.append(time.monotonic() - started)
        return trace

    def _warmup(self, key: _Key) -> int:
        """Give the steps before the window: until the batches that were made ahead are used up."""
        survey = self.survey
        values = dict(key)
        workers = int(values.get("num_workers", survey.loader.num_workers) or 0)
        ahead = int(values.get("prefetch_factor", survey.current("prefetch_factor")) or 0)
        step = fmean(survey.pace.after(_SETTLE).seconds)
        affordable = int(2 * self._window / step)
        return _SETTLE + min(workers * ahead, max(_SETTLE, affordable), survey.loader.passes or 999)


def _surveyed(trace: Trace) -> Survey:
    """Give what the first run showed; raises `ScriptError` where there is nothing to tune."""
    if trace.failure is not None:
        raise ScriptError(trace.failure)
    pace = Pace.from_json(trace.pace) if trace.pace else None
    if not trace.taken or pace is None:
        raise ScriptError(Failure("idle", "no torch optimizer took a step in it"))
    trained = pace.trained_on
    if trained is None:
        reason = "no `DataLoader` feeds its training steps, so there is nothing to tune"
        raise ScriptError(Failure("idle", reason))
    if len(pace.seconds) < _FEWEST:
        reason = f"it took {trace.taken} steps in all, too few to time: give it more data or epochs"
        raise ScriptError(Failure("idle", reason))
    return Survey(trace, pace, pace.loaders[trained])
