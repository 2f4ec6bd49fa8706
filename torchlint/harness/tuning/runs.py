"""Runs of the real script with other settings, alternating with the original script."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

import psutil

from torchlint.harness.pace import LoaderSeen, Pace
from torchlint.harness.plan import BY_HAND, Plan, Task
from torchlint.harness.runs import process, tree
from torchlint.harness.runs.runner import Runner
from torchlint.harness.session import ScriptError
from torchlint.harness.stage import HANGS
from torchlint.harness.trace import Failure, Trace
from torchlint.harness.tuning.report import Rate, TimedRun, Trial, Value, noise_of, rate_of

Values = Mapping[str, Value]
Edit = Callable[[Values], Mapping[str, str]]
"""Returns the project's files with the loader's settings changed."""

_SETTLE: Final = 3
_LEAST_STEPS: Final = 16
_FEWEST: Final = 6
"""The least number of steps that a run needs."""
_RUNS_FIT: Final = 60
_WINDOW: Final = (1.0, 5.0)
"""The least and the most seconds of a window."""
_LEAST_LIMIT: Final = 5.0
"""The seconds that a run may always take: workers start slowly on a busy machine."""
_BESIDE: Final = 2
"""The number of runs between two of the original."""
_PREFETCH: Final = 2
"""The default of torch where there are workers."""

_Key = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """The current run, with seconds gone and an upper bound for the seconds left."""

    what: str
    gone: float
    left: float


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of one run of the original script."""

    trace: Trace
    pace: Pace
    loader: LoaderSeen

    @property
    def made(self) -> tuple[LoaderSeen, ...]:
        """The training loader, followed by the others of the same data."""
        alike = (each for each in self.pace.loaders if each.same_data == self.loader.same_data)
        return (self.loader, *alike)

    def current(self, knob: str) -> Value:
        """Return the current value of a setting, torch's default where there is none."""
        value: Value = getattr(self.loader, knob)
        return _PREFETCH if knob == "prefetch_factor" and value is None else value


class Runs:
    """The runs of one search, in a folder that is removed at the end."""

    def __init__(self, plan: Plan, notify: Callable[[Progress], None] | None = None) -> None:
        self.plan = plan
        self.begin = time.monotonic()
        self.count = 0
        self._runner = Runner(plan, None)
        self._before = tree.snapshot(self._runner.root, self._runner.folder)
        self._notify = notify
        self._window = min(max(plan.budget / _RUNS_FIT, _WINDOW[0]), _WINDOW[1])
        self._survey: Survey | None = None
        self._leader: int | None = None
        self._timed: dict[_Key, list[TimedRun]] = {}
        self._traces: dict[_Key, Trace] = {}
        self._walls: list[float] = []
        self._since = 0

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.close()

    # -- the original script --------------------------------------------------

    @property
    def survey(self) -> Survey:
        """The first run of the original script; raises `ScriptError` where nothing can be tuned."""
        if self._survey is None:
            missing = process.missing_device(self.plan.device, self._runner.folder)
            if missing:
                raise ScriptError(Failure("idle", missing))
            self._runner.serve()
            trace = self._run((), {}, "first run of the script")
            if trace.leader == BY_HAND:
                self._leader = BY_HAND
                trace = self._run((), {}, "second run of the script, with `backward()` as a step")
            self._survey = _surveyed(trace)
        return self._survey

    @property
    def original(self) -> list[TimedRun]:
        """The timed runs of the original script."""
        return self._timed.get((), [])

    @property
    def noise(self) -> float:
        """The noise of the original script."""
        return noise_of(self.original)

    @property
    def written(self) -> tuple[str, ...]:
        """Project files that changed despite the diversion."""
        return tree.changes(self._before, self._runner.root, self._runner.folder)

    def run_original(self) -> None:
        """Time the original script; raises `ScriptError` if it fails."""
        if not self._timed_once((), {}, "the original script"):
            raise ScriptError(self._traces[()].failure or Failure("idle", "it took too few steps"))
        self._since = 0

    # -- with other settings --------------------------------------------------

    def fits(self, share: float) -> bool:
        """Return whether one more run fits into that share of the budget."""
        expected = median(self._walls[1:][-4:] or self._walls)
        return time.monotonic() - self.begin + expected <= share * self.plan.budget

    def measure(self, values: Values, edit: Edit, what: str) -> bool:
        """Time the script with these settings; return False where it fails.

        Only a few other runs lie between two of the original.
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
        """Time the original once more after the last other run."""
        if self._since:
            self.run_original()

    def times(self, values: Values) -> int:
        """Return how often these settings were timed."""
        return len(self._timed.get(self._key(values), ()))

    def rate(self, values: Values) -> Rate | None:
        """Return the samples per second of these settings, None where they were not timed."""
        runs = self._timed.get(self._key(values))
        return rate_of(runs, self.original) if runs else None

    def trial(self, value: Value, values: Values) -> Trial | None:
        """Return the measurements of these settings, None where they never ran."""
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
            loading=fmean(run.pace.loading for run in runs),
        )

    def memory_fits(self, more: int) -> bool:
        """Return whether the machine has this much memory left."""
        return bool(more < psutil.virtual_memory().available)

    def _key(self, values: Values) -> _Key:
        """Return the settings that differ from the current ones."""
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
        self._timed.setdefault(key, []).append(TimedRun(self.count, pace, self._warmup(key)))
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
            module=plan.module,
        )
        limit = max(_LEAST_LIMIT, HANGS * max(self._walls)) if self._walls else math.inf
        started = time.monotonic()
        trace = self._runner.start(task, limit)
        if trace.failure is not None and trace.failure.kind == "timeout":
            return trace
        self._walls.append(time.monotonic() - started)
        return trace

    def _warmup(self, key: _Key) -> int:
        """Return the warm-up steps, which use up the batches that were prefetched."""
        survey = self.survey
        values = dict(key)
        workers = int(values.get("num_workers", survey.loader.num_workers) or 0)
        ahead = int(values.get("prefetch_factor", survey.current("prefetch_factor")) or 0)
        step = fmean(survey.pace.after(_SETTLE).seconds)
        affordable = int(2 * self._window / step)
        return _SETTLE + min(workers * ahead, max(_SETTLE, affordable), survey.loader.passes or 999)


def _surveyed(trace: Trace) -> Survey:
    """Return the result of the first run; raises `ScriptError` where nothing can be tuned."""
    if trace.failure is not None:
        raise ScriptError(trace.failure)
    pace = Pace.from_json(trace.pace) if trace.pace else None
    if not trace.taken or pace is None:
        raise ScriptError(Failure("idle", "no torch optimizer took a step"))
    trained = pace.trained_on
    if trained is None:
        reason = "no `DataLoader` feeds its training steps, so there is nothing to tune"
        raise ScriptError(Failure("idle", reason))
    if len(pace.seconds) < _FEWEST:
        reason = f"it took only {trace.taken} steps, too few to time; give it more data or epochs"
        raise ScriptError(Failure("idle", reason))
    return Survey(trace, pace, pace.loaders[trained])
