"""One verification: which runs there are, in which order, and how they are judged."""

from __future__ import annotations

import math
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from torchlint.harness.judging.anatomy import Bound, bound
from torchlint.harness.judging.assessment import (
    Evidence,
    assess,
    crowd,
    durations,
    is_settled,
    syncs_per_step,
    work_noise,
)
from torchlint.harness.judging.doubt import STEPS_BY_HAND, Doubt
from torchlint.harness.judging.parity import Parity, state_doubts, throttled
from torchlint.harness.judging.promise import Comparison
from torchlint.harness.judging.statistics import Interval, level, noise_band, step_time
from torchlint.harness.judging.verdict import Outcome, Report
from torchlint.harness.news import Listener
from torchlint.harness.plan import BY_HAND, ORIGINAL, Plan, Variant
from torchlint.harness.runs import process, tree
from torchlint.harness.runs.runner import Runner
from torchlint.harness.stage import Notify
from torchlint.harness.trace import Failure, Trace
from torchlint.harness.window import QUICK_RUNS, is_even, short_window, warm_steps

_FEWEST: Final = 8
"""Steps that a script must take so that single steps can be timed."""
_EPOCH: Final = 10.0
"""The most seconds of a run over a whole epoch, where there is no budget."""

_DELAYED: Final = 4.0
"""Seconds of the first run after which it is said to take long."""
_MOVES: Final = 3
"""How often a window is tried before it is taken as it is."""
_NO_TORCH: Final = "it never imports torch, so there is nothing to measure"
_TOO_SLOW: Final = (
    "a run takes too long to compare two within {:.0f} s; give it a longer --budget, or none"
)
_TRAINS_ELSEWHERE: Final = (
    "no torch optimizer took a step, but the script starts other processes; "
    "verify the script that trains"
)
_ONE_HOST: Final = (
    "its processes form no group, so each host would run it alone; verify it without --nnodes"
)
_OTHER_DEVICE: Final = "it was to train on {} but trained on {}; choose the device in its arguments"


class ScriptError(Exception):
    """The original script cannot be measured; `failure` says why and where."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class InterruptedSession(Exception):  # noqa: N818 - it is no error
    """A verification was interrupted; `report` holds what is known by then."""

    def __init__(self, report: Report, signal: int) -> None:
        super().__init__(signal)
        self.report = report
        self.signal = signal


@dataclass(slots=True)
class _Trial:
    """A variant with its runs, and how its numbers compare."""

    variant: Variant
    evidence: Evidence
    comparison: Comparison | None

    @property
    def ratio(self) -> float | None:
        """How many times faster it is so far, None where no run of both sides was timed."""
        evidence = _whole_rounds(self.evidence)
        if not evidence.rounds or evidence.broken is not None:
            return None
        before, after = level(durations(evidence.originals), durations(evidence.rounds))
        return step_time(before) / step_time(after)

    @property
    def sound(self) -> bool:
        """Whether to time it: it runs, and its numbers are not known to be wrong."""
        return self.comparison is not None and self.comparison.kept is not False


class Session:
    """The runs of one verification."""

    def __init__(
        self,
        plan: Plan,
        notify: Notify | None = None,
        against: Variant = ORIGINAL,
        listener: Listener | None = None,
    ) -> None:
        self._plan = plan
        self._side = against
        self._listener = listener or Listener()
        self._runner = Runner(plan, notify, against)
        self._before = tree.snapshot(self._runner.root, self._runner.folder)
        self._original: Evidence | None = None
        self._window = (plan.warmup, plan.steps)
        self._rounds = plan.rounds
        self._extra = 0
        """Rounds beyond these, for which the budget had time."""
        self._trials: list[_Trial] = []
        self._judged: list[Variant] = []
        self._outcomes: list[Outcome] = []
        self._unmeasured: list[str] = []
        self._announced = False
        self._repeated = 0
        """Timed runs that were made again, since the device was slowed down."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.close()

    @property
    def root(self) -> Path:
        """The folder of the script's project."""
        return self._runner.root

    def survey(self) -> tuple[str, ...]:
        """Run the original once and return the project files that it imports.

        Raises `ScriptError` for a script that cannot be measured.
        """
        missing = process.missing_device(self._plan.device, self._runner.folder)
        if missing:
            raise ScriptError(Failure("idle", missing))
        self._runner.serve()
        began = time.monotonic()
        with self._telling_of_delay():
            first = self._measurable(self._runner.run(self._side, "numbers"))
        self._runner.leader = first.leader
        if first.leader == BY_HAND:
            began = time.monotonic()
            first = self._measurable(self._runner.run(self._side, "numbers"))
        wanted = self._plan.device.partition(":")[0]
        if first.taken and wanted not in ("auto", first.device):
            raise ScriptError(Failure("idle", _OTHER_DEVICE.format(wanted, first.device)))
        self._original = Evidence(first)
        self._runner.whole = first.ending == "ended" and first.taken < _FEWEST
        took = time.monotonic() - began
        self._fit_window(first, took)
        if self._plan.limited:
            self._runner.compared = first.taken
        self._compare_with(first)
        return first.modules

    @contextmanager
    def _telling_of_delay(self) -> Iterator[None]:
        """Tell what to expect if the body, the first run, takes long; no estimate is known yet.

        Later runs start faster, since torch is imported by then.
        """
        runs = self._timed_runs(1) + 3
        expected = _DELAYED, runs, runs * _DELAYED / 2
        timer = threading.Timer(_DELAYED, self._listener.delayed, expected)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _compare_with(self, first: Trace) -> None:
        self._parity = Parity(
            lambda variant, mode, shift: self._runner.run(variant, mode, shift=shift),
            first,
            lambda runs: self._runner.schedule.fits(numbers=runs, time=2),
            self._side,
        )

    def measure(self, variants: Sequence[Variant]) -> Report:
        """Run every variant against the original, and report on these and on earlier ones.

        Under a budget all fixes together come first, and others follow while there is time.
        Raises `InterruptedSession` with what is known where a signal ends it.
        """
        if self._original is None:
            self.survey()
        assert self._original is not None
        try:
            self._measure_all(self._original, variants)
        except KeyboardInterrupt as stop:
            number = stop.args[0] if stop.args else signal.SIGINT
            raise InterruptedSession(self._partial(self._original, variants), number) from None
        return self._report(self._original)

    def _measure_all(self, original: Evidence, variants: Sequence[Variant]) -> None:
        self.announce(len({frozenset(variant.texts.items()) for variant in variants}))
        if not self._plan.limited:
            self._measure(original, variants)
            self._settle(original)
            return
        for variant in sorted(variants, key=lambda variant: variant.kind == "rule"):
            late = not self._runner.schedule.fits(numbers=1, time=self._timed_runs(1))
            known = self._trial(variant) is not None
            if late and self._outcomes and variant.kind == "rule" and not known:
                self._unmeasured += variant.codes
                continue
            self._measure(original, [variant])
        self._settle(original)

    def save_traces(self, folder: Path) -> list[Path]:
        """Record a few steps of both sides with torch's profiler, and return the files.

        These runs come after all others. Of several variants, the one with most fixes is
        recorded. Raises `OSError` where the folder cannot be written.
        """
        sound = [trial.variant for trial in self._trials if trial.sound]
        widest = max(sound, key=lambda variant: len(variant.codes), default=None)
        files = []
        for variant, name in ((self._side, "original"), (widest, "fixed")):
            trace = None if variant is None else self._runner.run(variant, "profile")
            if trace is not None and trace.profile:
                files.append(folder / f"{name}.json.gz")
                shutil.copyfile(trace.profile, files[-1])
        return files

    def announce(self, variants: int) -> None:
        """Tell, once, how many runs are planned and how long they will take."""
        if variants and not self._announced:
            self._announced = True
            self._expect(variants, numbers=variants)
            schedule = self._runner.schedule
            self._listener.planned(variants, schedule.ahead, schedule.left, schedule.remaining)

    def _settle(self, original: Evidence) -> None:
        """Repeat rounds while two runs of the original differ too much, and time allows.

        How many there are does not depend on what is seen of a variant.
        """
        trials = [trial for trial in self._trials if trial.evidence.rounds]
        trials = [trial for trial in trials if trial.evidence.broken is None]
        runs = 3 * len(trials) + 1
        schedule, most = self._runner.schedule, self._plan.most_rounds
        while trials and self._all_rounds < most and schedule.fits(time=runs):
            sides = [_whole_rounds(trial.evidence) for trial in trials]
            if is_settled(_noise(original), original, sides):
                break
            schedule.expect(time=runs * (most - self._all_rounds))
            self._round(original, trials, self._all_rounds + 1, most)
            self._extra += 1
        self._assess(original)

    @property
    def _all_rounds(self) -> int:
        return self._rounds + self._extra

    def _partial(self, original: Evidence, variants: Sequence[Variant]) -> Report:
        """Report what is known of the variants when the session is interrupted."""
        self._assess(original)
        judged = [outcome.variant.texts for outcome in self._outcomes]
        begun = [trial.variant for trial in self._trials if trial.variant.texts not in judged]
        self._outcomes += map(_unfinished, self._judged_by_now(original, begun))
        known = {code for trial in self._trials for code in trial.variant.codes}
        missing = [code for variant in variants for code in variant.codes if code not in known]
        report = self._report(original)
        doubt = Doubt.interrupted(tuple(dict.fromkeys(missing)))
        return replace(report, partial=True, doubts=(*report.doubts, doubt))

    def _measurable(self, trace: Trace) -> Trace:
        """Return the trace of an original that can be measured; raise `ScriptError` otherwise."""
        late = trace.failure is not None and trace.failure.kind == "timeout"
        too_slow = Failure("timeout", _TOO_SLOW.format(self._plan.budget))
        if self._plan.limited and self._plan.timeout > self._plan.budget and late:
            raise ScriptError(too_slow)
        if trace.failure is not None:
            raise ScriptError(trace.failure)
        if not trace.torch:
            raise ScriptError(Failure("idle", _TRAINS_ELSEWHERE if trace.processes else _NO_TORCH))
        if not trace.taken and trace.processes:
            raise ScriptError(Failure("idle", _TRAINS_ELSEWHERE))
        if not self._runner.schedule.fits(numbers=1):
            raise ScriptError(too_slow)
        launcher = self._plan.launcher
        if launcher is not None and launcher.nnodes > 1 and not trace.joined:
            raise ScriptError(Failure("idle", _ONE_HOST))
        return trace

    def _measure(self, original: Evidence, variants: Sequence[Variant]) -> None:
        """Measure some variants in the same rounds; variants with equal texts count as one."""
        distinct: list[Variant] = []
        for variant in variants:
            if self._trial(variant) is None and all(
                variant.texts != other.texts for other in distinct
            ):
                distinct.append(variant)
        self._expect(len(distinct), numbers=len(distinct))
        trials = []
        widest = max(distinct, key=lambda variant: len(variant.codes), default=None)
        reached = None if widest is None else self._reached(original, widest)
        for variant in distinct:
            trials.append(self._tried(variant, reached if variant is widest else None))
            self._trials.append(trials[-1])
            evidence, comparison = trials[-1].evidence, trials[-1].comparison
            self._listener.compared(assess(variant, original, evidence, comparison, None))
        sound = [trial for trial in trials if trial.sound]
        self._expect(len(sound))
        if sound:
            self._time(original, sound)
            self._measure_syncs(original, sound)
        self._judged += variants
        self._outcomes += self._judged_by_now(original, variants)

    def _assess(self, original: Evidence) -> None:
        """Judge every variant that was measured by all of its runs."""
        self._outcomes = self._judged_by_now(original, self._judged)

    def _judged_by_now(self, original: Evidence, variants: Sequence[Variant]) -> list[Outcome]:
        """Judge variants by the runs that are complete."""
        noise, of_work = _noise(original), work_noise(original.rounds)
        outcomes = []
        for variant in variants:
            trial = self._trial(variant)
            assert trial is not None
            evidence = _whole_rounds(trial.evidence)
            originals = replace(original, rounds=evidence.originals)
            found = assess(variant, originals, evidence, trial.comparison, noise, of_work)
            outcomes.append(found)
        return outcomes

    def _trial(self, variant: Variant) -> _Trial | None:
        """Return what is known of a variant with these texts."""
        return next((it for it in self._trials if it.variant.texts == variant.texts), None)

    def _tried(self, variant: Variant, numbers: Trace | None) -> _Trial:
        evidence = Evidence(numbers or self._runner.run(variant, "numbers"))
        return _Trial(variant, evidence, self._parity.compare(variant, evidence.numbers))

    def _reached(self, original: Evidence, variant: Variant) -> Trace:
        """Return the numbers of a variant, with the window over an epoch if it asks for that.

        It does where changed lines run only there, as in an evaluation, and a run is not too long.
        """
        trace = self._runner.run(variant, "numbers")
        window = max(1, self._plan.warmup), math.ceil(trace.epoch_steps or trace.epoch or 0)
        longest = self._plan.budget / QUICK_RUNS if self._plan.limited else _EPOCH
        timed = bool(original.rounds) or trace.ending != "full" or sum(window) <= trace.taken
        if timed or not trace.idle or median(trace.durations) * sum(window) > longest:
            return trace
        if not self._runner.schedule.fits(numbers=3):
            return trace
        longer = self._runner.run(variant, "numbers", window, limit=2 * longest)
        if longer.ending != "full" or len(longer.idle) >= len(trace.idle):
            return trace
        self._runner.lengthen(*window)
        original.numbers = self._measurable(self._runner.run(self._side, "numbers"))
        self._compare_with(original.numbers)
        self._window = window
        return self._runner.run(variant, "numbers")

    def _measure_syncs(self, original: Evidence, sound: Sequence[_Trial]) -> None:
        """Find host syncs and, on request, the phases of steps, in runs that are not timed."""
        if self._runner.whole:
            return
        sides = [(self._side, original), *((trial.variant, trial.evidence) for trial in sound)]
        fits = self._runner.schedule.fits
        unseen = [side for side in sides if side[1].syncs is None]
        for variant, evidence in unseen if fits(syncs=len(unseen)) else ():
            evidence.syncs = self._runner.run(variant, "syncs")
        unseen = [side for side in sides if side[1].timeline is None and self._plan.timeline]
        for variant, evidence in unseen if fits(timeline=len(unseen)) else ():
            evidence.timeline = self._runner.run(variant, "timeline", self._window)

    def _time(self, original: Evidence, sound: Sequence[_Trial]) -> None:
        """Time each variant twice in every round, between two runs of the original.

        Whatever slows the machine for a while slows a variant and the originals beside it
        alike.
        """
        fits = self._runner.schedule.fits
        if not fits(time=2):
            return
        if not original.rounds:
            self._warm_up(original.numbers)
        if not fits(time=self._timed_runs(len(sound))):
            self._rounds = 1
        for number in range(self._rounds):
            self._round(original, sound, number + 1, self._rounds)

    def _round(self, original: Evidence, sound: Sequence[_Trial], number: int, most: int) -> None:
        """Time each variant between two runs of the original, and tell the result so far."""
        originals = [self._timed(self._side)]
        original.rounds.append(originals)
        for trial in sound:
            originals += self._time_between(originals[-1], trial)
        if original.broken is not None:
            raise ScriptError(original.broken)
        ratios = [(trial.variant, ratio) for trial in sound if (ratio := trial.ratio) is not None]
        self._listener.timed(number, most, ratios, self._runner.schedule.rest)

    def _time_between(self, before: Trace, trial: _Trial) -> list[Trace]:
        """Time a variant twice after a run of the original, and return the original's next run.

        With a single round, that next run stands between the two, so that each variant run
        has its own original. Otherwise a busy moment that hits both could not be
        distinguished from the variant. Where time is short, the variant is timed once and
        no other run of the original follows.
        """
        first = self._timed(trial.variant)
        if self._rounds == 1:
            if not self._runner.schedule.fits(time=2):
                trial.evidence.rounds.append([first])
                trial.evidence.originals.append([before])
                return []
            after = self._timed(self._side)
            trial.evidence.rounds += [[first], [self._timed(trial.variant)]]
            trial.evidence.originals += [[before], [after]]
            return [after]
        trial.evidence.rounds.append([first, self._timed(trial.variant)])
        after = self._timed(self._side)
        trial.evidence.originals.append([before, after])
        return [after]

    def _timed(self, variant: Variant) -> Trace:
        """Time a variant once more where the device was slowed down meanwhile."""
        trace = self._runner.run(variant, "time", self._window)
        if not throttled(trace) or not self._runner.schedule.fits(time=1):
            return trace
        self._repeated += 1
        return self._runner.run(variant, "time", self._window)

    def _warm_up(self, first: Trace) -> None:
        """Move the window until devices and compiled code are warm, if the script has the steps.

        A device takes a while to reach its clock, however few steps that is.
        """
        on_device = first.device_clock
        if self._runner.whole or first.ending != "full" or not (on_device or first.compiled):
            return
        if self._runner.plan is not self._plan:  # the window spans an epoch
            return
        warmup, steps = self._window
        if on_device:
            warmup = warm_steps(warmup, median(first.durations), self._plan.budget)
        for _ in range(_MOVES):
            if not self._runner.schedule.fits(time=1):
                return
            trace = self._runner.run(self._side, "time", (warmup, steps))
            if trace.ending != "full":
                return
            self._window = warmup, steps
            if not trace.compiles and (is_even(trace.durations) or not on_device):
                return
            warmup += steps

    def _expect(self, variants: int, numbers: int = 0) -> None:
        """Tell the schedule how many runs these variants and comparisons take."""
        looks = 0 if self._runner.whole or not variants else variants + (not self._outcomes)
        self._runner.schedule.expect(
            numbers=numbers,
            time=self._timed_runs(variants) if variants else 0,
            syncs=looks,
            timeline=looks if self._plan.timeline else 0,
        )

    def _timed_runs(self, variants: int) -> int:
        """Return the number of timed runs for so many variants, those of the original included."""
        return self._rounds * (3 * variants + 1)

    def _fit_window(self, first: Trace, took: float) -> None:
        """Shorten the warm-up and the window where the script ends early or time is short."""
        warmup, steps = self._plan.warmup, self._plan.steps
        if first.ending != "full":
            warmup = min(warmup, first.taken // 4)
            steps = min(steps, first.taken - warmup)
        self._window = warmup, steps
        run = took
        if first.durations and not self._runner.whole:
            pace = median(first.durations)
            start = max(0.0, took - pace * first.taken)
            if self._plan.limited:
                self._window = short_window(warmup, steps, start, pace, self._plan.budget)
            run = start + pace * sum(self._window)
        if run > self._plan.budget / QUICK_RUNS:
            self._rounds = 1
        self._runner.schedule.assume("time", run)

    def _report(self, original: Evidence) -> Report:
        plan = self._plan
        first = original.numbers
        warmup, steps = self._window
        changed = tree.changes(self._before, self._runner.root, self._runner.folder)
        return Report(
            script=str(plan.script),
            args=plan.args,
            device=first.device,
            torch=first.torch,
            machine=first.machine,
            seed=plan.seed,
            steps=0 if self._runner.whole else steps,
            warmup=0 if self._runner.whole else warmup,
            rounds=self._all_rounds,
            noise=_noise(original),
            outcomes=tuple(self._outcomes),
            doubts=self._doubts(first, changed) if self._outcomes else (),
            diverted=tree.shown(self._runner.diverted, self._runner.root),
            changed=changed,
            launcher=plan.launcher,
            before=self._side,
            whole=self._runner.whole,
            epoch_steps=first.epoch_steps,
            bound=self._bound(original),
        )

    def _bound(self, original: Evidence) -> Bound | None:
        if self._runner.whole:
            return None
        return bound(original.timed, original.syncs, syncs_per_step(original.syncs))

    def _doubts(self, first: Trace, changed: tuple[str, ...]) -> tuple[Doubt, ...]:
        doubts = []
        if first.leader == BY_HAND:
            doubts.append(STEPS_BY_HAND)
        if self._runner.whole:
            doubts.append(Doubt.whole_runs(first.taken))
        elif first.ending != "full":
            doubts.append(Doubt.short_script(first.taken))
        losses = zip(first.losses, first.loss_steps, strict=False)
        lost = next((each for each in losses if not math.isfinite(each[0])), None)
        if lost is not None:
            doubts.append(Doubt.not_a_number(*lost))
        if self._unmeasured:
            doubts.append(Doubt.not_measured(tuple(self._unmeasured)))
        if changed:
            doubts.append(Doubt.written(changed))
        timed = [trace for trial in self._trials for trace in trial.evidence.timed]
        busy, slept = crowd(timed), self._runner.crowded
        if first.device == "cpu" and timed and (busy is not None or slept):
            doubts.append(Doubt.busy_machine(busy, slept=slept))
        originals = [
            trace for trial in self._trials for it in trial.evidence.originals for trace in it
        ]
        return (*doubts, *state_doubts((*timed, *originals), self._repeated))


def _whole_rounds(evidence: Evidence) -> Evidence:
    """Return the rounds of which both sides were run."""
    count = min(len(evidence.rounds), len(evidence.originals))
    rounds, originals = evidence.rounds[:count], evidence.originals[:count]
    return replace(evidence, rounds=rounds, originals=originals)


def _unfinished(outcome: Outcome) -> Outcome:
    """Return an outcome without doubts about limits of time, which none had."""
    limits = ("not-timed", "timed-once")
    doubts = tuple(doubt for doubt in outcome.doubts if doubt.name not in limits)
    return replace(outcome, doubts=doubts)


def _noise(original: Evidence) -> Interval | None:
    """Return the noise of the original, None where no round timed it twice."""
    paired = [runs for runs in original.rounds if len(runs) > 1]
    return noise_band(level(durations(paired))[0]) if paired else None
