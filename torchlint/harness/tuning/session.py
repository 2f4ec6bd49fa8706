"""The search for the settings of a loader: what to try, and what to choose."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from torchlint.engine.processes import processors
from torchlint.harness.tuning.report import Knob, Rate, SettingSearch, Trial, TuningReport, Value
from torchlint.harness.tuning.runs import Edit, Runs

_MOST_RUNS: Final = 4
_NO_WAIT: Final = 0.03
"""A share of waiting for data so small that no setting of the loader matters."""
_UNTIL: Final[Mapping[Knob, float]] = {
    "num_workers": 0.55,
    "prefetch_factor": 0.7,
    "pin_memory": 0.8,
    "batch_size": 1.0,
}
"""The share of the budget that may be used when each setting is done."""
_AT_LEAST: Final = 3
"""Values of a setting to try even when its share of the budget is used up."""
_ALWAYS: Final = 2
"""Numbers of workers to try whatever the budget, so that there is an answer."""
_PREFETCH_MOST: Final = 8
_WORKERS_MOST: Final = 16
_MOST_TOLERANCE: Final = 0.2
_OUT_OF_TIME: Final = "the budget is used up; raise --budget"
_NO_MEMORY: Final = "{} would need more memory than the machine has"
TOLERANCE: Final = 0.05
"""The relative difference up to which a value counts as good as the best."""

_FINE: Final = 4
"""A gap below the knee that is a smaller part of it than this is not searched."""

_IN_VAIN: Final = 2
"""Doublings without a gain after which the search stops."""


def search(runs: Runs, edit: Edit, fixed: Mapping[Knob, str]) -> TuningReport:
    """Search one setting after the other, each with the best values of those before.

    `fixed` are settings that cannot be changed, each with the reason. Raises `ScriptError`.
    """
    survey = runs.survey
    runs.run_original()
    series = [_Series(runs, edit, knob, fixed.get(knob, "")) for knob in _UNTIL]
    base: dict[str, Value] = {}
    for each, explore in zip(series, (_workers, _prefetch, _pinning, _batches), strict=True):
        each.base = dict(base)
        explore(each)
        each.close()
        base[each.knob] = each.choice if each.knob != "batch_size" else each.current
    pace = survey.pace
    return TuningReport(
        script=str(runs.plan.script),
        args=runs.plan.args,
        device=survey.trace.device,
        torch=survey.trace.torch,
        cores=processors(),
        loader=survey.loader,
        others=tuple(each for each in pace.loaders if each.draws and each is not survey.loader),
        optimizer=pace.optimizer,
        learning_rate=pace.learning_rate,
        runs=runs.count,
        seconds=time.monotonic() - runs.begin,
        budget=runs.plan.budget,
        noise=runs.noise,
        settings=tuple(each.found for each in series),
        written=runs.written,
    )


class _Series:
    """The tried values of one setting, on top of the choices for those before it."""

    def __init__(self, runs: Runs, edit: Edit, knob: Knob, fixed: str) -> None:
        self.runs = runs
        self.edit = edit
        self.knob: Knob = knob
        self.base: dict[str, Value] = {}
        self.current = runs.survey.current(knob)
        self.choice = self.current
        self.not_tried = fixed
        self.tried: list[int] = []
        self.found = SettingSearch(knob, self.current, choice=self.current, not_tried=fixed)

    @property
    def tolerance(self) -> float:
        """How far below the best a value may be and still count as good."""
        return min(max(TOLERANCE, self.runs.noise), _MOST_TOLERANCE)

    def values(self, value: int) -> dict[str, Value]:
        """Return the settings of a run."""
        return {**self.base, self.knob: self._typed(value)}

    def attempt(self, value: int) -> bool | None:
        """Run a value once; return whether it is the best, None where it fails or time is up."""
        if value not in self.tried:
            self.tried.append(value)
        if not self.runs.times(self.values(value)):
            if not self._may_run():
                self.not_tried = _OUT_OF_TIME
                self.tried.remove(value)
                return None
            what = f"{self.knob}={self.values(value)[self.knob]}"
            if not self.runs.measure(self.values(value), self.edit, what):
                return None
        rates = self.rates()
        rivals = [rate.value for other, rate in rates.items() if other != value]
        return not rivals or rates[value].value > max(rivals) * (1 + TOLERANCE)

    def _may_run(self) -> bool:
        """Return whether there is time for the value that was just added."""
        tried = len(self.tried)
        if self.knob == "num_workers" and tried <= _ALWAYS:
            return True
        return self.runs.fits(1.0 if tried <= _AT_LEAST else _UNTIL[self.knob])

    def rates(self) -> dict[int, Rate]:
        """Return the rate of every value that was timed."""
        found = {value: self.runs.rate(self.values(value)) for value in self.tried}
        return {value: rate for value, rate in found.items() if rate is not None}

    def trial(self, value: int) -> Trial | None:
        """Return the measurements of a value."""
        return self.runs.trial(self._typed(value), self.values(value))

    def refine(self) -> None:
        """Halve the gap below the knee until there is none."""
        while (value := next_between(self.rates(), self.tried, self.tolerance)) is not None:
            if self.attempt(value) is None and self.not_tried:
                return

    def settle(self) -> None:
        """Repeat the values that the intervals leave undecided, including the current one."""
        while not self.not_tried:
            rates = self.rates()
            again = [
                value
                for value in undecided(rates, self.tolerance)
                if self.runs.times(self.values(value)) < _MOST_RUNS
            ]
            decisive = self._decisive()
            again += [value for value in decisive if self.runs.times(self.values(value)) < 2]
            if not again:
                return
            for value in dict.fromkeys(again):
                if not self.runs.fits(_UNTIL[self.knob]):
                    return
                self.runs.measure(self.values(value), self.edit, f"{self.knob}={value} again")

    def _decisive(self) -> list[int]:
        """Return the values that the advice names: the knee and the best."""
        rates = self.rates()
        knee = knee_of(rates, self.tolerance)
        if knee is None or len(rates) < 2:
            return []
        return [knee, max(rates, key=lambda value: rates[value].value)]

    def close(self) -> None:
        """Choose the knee, or keep the current value if it is as good and no smaller one helps."""
        if self.tried:
            self.runs.close_turn()
        rates = self.rates()
        choice = self._choice(rates)
        if choice is not None:
            self.choice = self._typed(choice)
        best = max(rates, key=lambda value: rates[value].value, default=None)
        self.found = SettingSearch(
            self.knob,
            self.current,
            tuple(trial for value in sorted(self.tried) if (trial := self.trial(value))),
            None if best is None else self._typed(best),
            self.choice,
            self.tolerance,
            self.not_tried,
        )

    def _choice(self, rates: Mapping[int, Rate]) -> int | None:
        """Return the value to choose, None for the current one; fewer workers are better."""
        current = -1 if self.current is None else int(self.current)
        if current not in rates or not as_good(rates, current, self.tolerance):
            return knee_of(rates, self.tolerance)
        return cheaper(rates, current, self.tolerance) if self.knob == "num_workers" else None

    def _typed(self, value: int) -> Value:
        return bool(value) if self.knob == "pin_memory" else value


def _workers(series: _Series) -> None:
    """Double the workers until more bring no gain, then search for the least that suffice."""
    runs = series.runs
    current = runs.survey.loader.num_workers
    if series.not_tried:
        return
    series.attempt(current)
    series.attempt(0)
    now = series.trial(0)
    if now is not None and now.rate is not None and _in_vain(now, series.tolerance):
        series.attempt(2)
    else:
        _double_workers(series)
        series.refine()
    series.settle()


def _in_vain(alone: Trial, tolerance: float) -> bool:
    """Return whether even free batches would bring no relevant gain."""
    return (1 + tolerance) * (1 - alone.wait_share) >= 1


def _double_workers(series: _Series) -> None:
    for value in doubling((2,), max(_WORKERS_MOST, 4 * processors()), series.attempt):
        trial = series.trial(value)
        none = series.trial(0)
        if trial is None or trial.rate is None:
            continue
        if trial.wait_share < _NO_WAIT:
            return
        each = (trial.memory - none.memory) / value if none is not None else 0
        if not series.runs.memory_fits(int(each * value)):
            series.not_tried = _NO_MEMORY.format(f"{value * 2} workers")
            return


def _prefetch(series: _Series) -> None:
    """Try more prefetched batches, where there are workers and the script still waits."""
    workers = series.base["num_workers"]
    if series.not_tried:
        return
    if not workers:
        series.not_tried = "it has no effect without workers"
        return
    series.attempt(int(series.current or 0))
    now = series.trial(int(series.current or 0))
    if now is not None and now.rate is not None and now.wait_share < _NO_WAIT:
        series.not_tried = f"the script waits for data only {now.wait_share:.0%} of the time"
        return
    for _ in doubling((2,), _PREFETCH_MOST, series.attempt):
        pass
    series.settle()


def _pinning(series: _Series) -> None:
    """Try pinned memory, where there is a device that copies from it."""
    if series.not_tried:
        return
    if series.runs.survey.trace.device == "cpu":
        series.not_tried = "the script trains on the CPU, where it has no effect"
        return
    series.attempt(int(bool(series.current)))
    series.attempt(int(not series.current))
    series.settle()


def _batches(series: _Series) -> None:
    """Double the batch size until memory or data run out, or more brings no gain."""
    survey = series.runs.survey
    current = survey.loader.batch_size
    if series.not_tried:
        return
    if current is None:
        series.not_tried = "the script's own sampler makes the batches"
        return
    most = min(survey.loader.length or current * 64, current * 64) // 2
    memory: list[int] = []
    for value in doubling((current,), max(most, current), series.attempt):
        trial = series.trial(value)
        if trial is None or trial.rate is None:
            continue
        memory.append(trial.memory)
        if len(memory) > 1 and not series.runs.memory_fits(2 * (memory[-1] - memory[-2])):
            series.not_tried = _NO_MEMORY.format(f"a batch of {value * 2}")
            break
    series.settle()


def doubling(
    first: Sequence[int], most: int, better: Callable[[int], bool | None]
) -> Iterator[int]:
    """Yield the first values and then doubled ones, until these bring no gain.

    `better` is called for each value after its run: it returns whether the value is the best so
    far by more than the tolerance, or None where it failed, which ends the search.
    """
    value = 0
    in_vain = 0
    for value in first:
        yield value
        if better(value) is None and value:
            return
    while 0 < value * 2 <= most and in_vain < _IN_VAIN:
        value *= 2
        yield value
        found = better(value)
        if found is None:
            return
        in_vain = 0 if found else in_vain + 1


def as_good(rates: Mapping[int, Rate], value: int, tolerance: float) -> bool:
    """Return whether a value is within the tolerance of the best, or not shown to be worse."""
    best = max(rates.values(), key=lambda rate: rate.value)
    rate = rates[value]
    return rate.value >= best.value * (1 - tolerance) or rate.high >= best.low


def knee_of(rates: Mapping[int, Rate], tolerance: float) -> int | None:
    """Return the smallest value that is as good as the best, None where none was measured."""
    return min((value for value in rates if as_good(rates, value, tolerance)), default=None)


def cheaper(rates: Mapping[int, Rate], current: int, tolerance: float) -> int | None:
    """Return the smallest value below the current one that is as good as the best.

    Its own measurement must show that, since a working setting is not given up on a guess.
    """
    least = rates[current].value * (1 - tolerance)
    return min(
        (
            value
            for value, rate in rates.items()
            if value < current and as_good(rates, value, tolerance) and rate.value >= least
        ),
        default=None,
    )


def next_between(rates: Mapping[int, Rate], tried: Sequence[int], tolerance: float) -> int | None:
    """Return the value that halves the gap below the knee, None where there is no gap."""
    knee = knee_of(rates, tolerance)
    if knee is None:
        return None
    below = max((value for value in tried if value < knee), default=knee)
    if knee - below <= max(1, knee // _FINE):
        return None
    return (below + knee + 1) // 2


def undecided(rates: Mapping[int, Rate], tolerance: float) -> list[int]:
    """Return the knee and the best where their intervals do not show them equally good."""
    knee = knee_of(rates, tolerance)
    if knee is None:
        return []
    best = max(rates, key=lambda value: rates[value].value)
    is_open = knee != best and rates[knee].low < rates[best].value * (1 - tolerance)
    return [knee, best] if is_open else []
