"""One verification: which runs there are, in which order, and what is made of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import TracebackType
from typing import Final

from torchlint.harness import tree
from torchlint.harness.assessment import Evidence, assess, durations
from torchlint.harness.doubt import Doubt
from torchlint.harness.parity import Parity
from torchlint.harness.plan import BY_HAND, ORIGINAL, Plan, Variant
from torchlint.harness.promise import Comparison
from torchlint.harness.runner import Runner
from torchlint.harness.stage import Notify
from torchlint.harness.statistics import noise_band
from torchlint.harness.trace import Failure, Trace
from torchlint.harness.verdict import Outcome, Report

__all__ = ["ScriptError", "Session"]

_FEWEST: Final = 8
"""Steps that a script must take to be timed by its steps."""
_QUICK: Final = 90.0
"""Seconds within which --quick is to be done."""
_QUICK_STEPS: Final = 3
"""Steps of a window at least, however slow they are."""
_QUICK_SHARE: Final = 0.25
"""How long its window lasts at least, of what a run takes to start."""
_QUICK_RUNS: Final = 12
"""Runs that the answer about one variant takes, with room for the comparison of its numbers."""

_NO_TORCH: Final = "it never imports torch, so there is nothing to measure"
_TRAINS_ELSEWHERE: Final = (
    "no torch optimizer took a step in it, but it starts processes of its own: "
    "verify the script that trains"
)
_OTHER_DEVICE: Final = "it was to train on {}, and it trained on {}: say so in its arguments"


class ScriptError(Exception):
    """The original script cannot be measured; `failure` says why and where."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(slots=True)
class _Trial:
    """A variant with its runs, and how its numbers compare."""

    variant: Variant
    evidence: Evidence
    comparison: Comparison | None

    @property
    def sound(self) -> bool:
        """Whether it is worth timing: it runs, and nothing shows that its numbers are off."""
        return self.comparison is not None and self.comparison.kept is not False


class Session:
    """The runs of one verification."""

    def __init__(self, plan: Plan, notify: Notify | None = None) -> None:
        self._plan = plan
        self._runner = Runner(plan, notify)
        self._before = tree.snapshot(self._runner.root, self._runner.folder)
        self._began = time.monotonic()
        self._original: Evidence | None = None
        self._window = (plan.warmup, plan.steps)
        self._rounds = plan.rounds
        self._trials: list[_Trial] = []
        self._outcomes: list[Outcome] = []
        self._unmeasured: list[str] = []

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.close()

    def survey(self) -> tuple[str, ...]:
        """Run the original once; give the project's files that it is made of.

        Raises `ScriptError` for a script that cannot be measured.
        """
        began = time.monotonic()
        first = _fit(self._runner.run(ORIGINAL, "numbers"))
        if first.leader == BY_HAND:
            self._runner.leader = BY_HAND
            began = time.monotonic()
            first = _fit(self._runner.run(ORIGINAL, "numbers"))
        wanted = self._plan.device.partition(":")[0]
        if first.taken and wanted not in ("auto", first.device):
            raise ScriptError(Failure("idle", _OTHER_DEVICE.format(wanted, first.device)))
        self._original = Evidence(first)
        self._fit_window(first, time.monotonic() - began)
        self._runner.whole = first.ending == "ended" and first.taken < _FEWEST
        self._runner.serve(first)
        if self._plan.quick:
            self._runner.compared = first.taken
        self._parity = Parity(
            lambda variant, mode, shift: self._runner.run(variant, mode, shift=shift),
            first,
            seeds=not self._plan.quick,
        )
        return first.modules

    def measure(self, variants: Sequence[Variant]) -> Report:
        """Run every variant against the original, and say what came out, now and before.

        A quick one begins with all fixes together, and goes on while there is time.
        """
        if self._original is None:
            self.survey()
        assert self._original is not None
        self._runner.look_over(variants)
        if not self._plan.quick:
            self._measure(self._original, variants)
            return self._report(self._original)
        longest = 0.0
        for variant in sorted(variants, key=lambda variant: variant.kind == "rule"):
            began = time.monotonic()
            late = began - self._began + longest > _QUICK
            known = self._trial(variant) is not None
            if late and self._outcomes and variant.kind == "rule" and not known:
                self._unmeasured += variant.codes
                continue
            self._measure(self._original, [variant])
            longest = max(longest, time.monotonic() - began)
        return self._report(self._original)

    def _measure(self, original: Evidence, variants: Sequence[Variant]) -> None:
        """Measure some variants beside each other; those with equal texts are one."""
        distinct: list[Variant] = []
        for variant in variants:
            if self._trial(variant) is None and all(
                variant.texts != other.texts for other in distinct
            ):
                distinct.append(variant)
        self._expect(len(distinct))
        trials = [self._tried(variant) for variant in distinct]
        self._trials += trials
        sound = [trial for trial in trials if trial.sound]
        fewer = len(sound) - len(trials)
        self._runner.schedule.expect(syncs=fewer, time=3 * self._rounds * fewer)
        self._look_closer(original, sound)
        if sound:
            self._time(original, sound)
        noise = noise_band(durations(original.rounds)) if original.rounds else None
        for variant in variants:
            trial = self._trial(variant)
            assert trial is not None
            beside = replace(original, rounds=trial.evidence.beside)
            self._outcomes.append(assess(variant, beside, trial.evidence, trial.comparison, noise))

    def _trial(self, variant: Variant) -> _Trial | None:
        """Give what is known of a variant with these texts."""
        return next((it for it in self._trials if it.variant.texts == variant.texts), None)

    def _tried(self, variant: Variant) -> _Trial:
        evidence = Evidence(self._runner.run(variant, "numbers"))
        return _Trial(variant, evidence, self._parity.compare(variant, evidence.numbers))

    def _look_closer(self, original: Evidence, sound: Sequence[_Trial]) -> None:
        """Look where the host waits and, if wanted, what steps are made of; none is timed."""
        if self._runner.whole or not sound:
            return
        sides = [(trial.variant, trial.evidence) for trial in sound]
        for variant, evidence in ((ORIGINAL, original), *sides):
            if evidence.syncs is None:
                evidence.syncs = self._runner.run(variant, "syncs")
            if self._plan.timeline and evidence.timeline is None:
                evidence.timeline = self._runner.run(variant, "timeline", self._window)

    def _time(self, original: Evidence, sound: Sequence[_Trial]) -> None:
        """Time each variant twice in every round, between two runs of the original.

        What slows the machine for a while slows a variant and the originals beside it.
        """
        for _ in range(self._rounds):
            before = self._timed(ORIGINAL)
            original.rounds.append([before])
            for trial in sound:
                before = self._time_beside(before, trial)
                original.rounds[-1].append(before)
        if original.broken is not None:
            raise ScriptError(original.broken)

    def _time_beside(self, before: Trace, trial: _Trial) -> Trace:
        """Time a variant twice behind a run of the original; give the next one of these.

        That stands between the two where there is one round, and each is held against its own:
        else a busy moment of the machine that meets both could not be told from the variant.
        """
        first = self._timed(trial.variant)
        if self._rounds == 1:
            after = self._timed(ORIGINAL)
            trial.evidence.rounds += [[first], [self._timed(trial.variant)]]
            trial.evidence.beside += [[before], [after]]
            return after
        trial.evidence.rounds.append([first, self._timed(trial.variant)])
        after = self._timed(ORIGINAL)
        trial.evidence.beside.append([before, after])
        return after

    def _timed(self, variant: Variant) -> Trace:
        return self._runner.run(variant, "time", self._window)

    def _expect(self, variants: int) -> None:
        """Tell the schedule what measuring so many variants takes."""
        rounds = self._rounds
        self._runner.schedule.expect(
            numbers=variants + (not self._outcomes),
            syncs=0 if self._runner.whole else variants + (not self._outcomes),
            time=rounds * (3 * variants + 1),
        )

    def _fit_window(self, first: Trace, took: float) -> None:
        """Take less warm-up and fewer steps where the script ends early.

        A quick answer takes fewer of both where they are slow, and one round where runs are.
        """
        plan = self._plan
        warmup, steps = plan.warmup, plan.steps
        if first.ending != "full":
            warmup = min(warmup, first.taken // 4)
            steps = min(steps, first.taken - warmup)
        if plan.quick and first.durations:
            pace = median(first.durations)
            start = max(0.0, took - pace * first.taken)
            fitting = int(max(_QUICK / _QUICK_RUNS - start, start * _QUICK_SHARE) / pace)
            warmup = max(1, min(warmup, fitting // 4))
            steps = max(_QUICK_STEPS, min(steps, fitting - warmup))
            if start + pace * (warmup + steps) > _QUICK / _QUICK_RUNS:
                self._rounds = 1
        self._window = warmup, steps

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
            seed=plan.seed,
            steps=0 if self._runner.whole else steps,
            warmup=0 if self._runner.whole else warmup,
            rounds=self._rounds,
            noise=noise_band(durations(original.rounds)) if original.rounds else None,
            outcomes=tuple(self._outcomes),
            doubts=self._doubts(first, changed) if self._outcomes else (),
            diverted=tree.shown(self._runner.diverted, self._runner.root),
            changed=changed,
            launcher=plan.launcher,
            whole=self._runner.whole,
        )

    def _doubts(self, first: Trace, changed: tuple[str, ...]) -> tuple[Doubt, ...]:
        doubts = []
        if first.leader == BY_HAND:
            doubts.append(Doubt.steps_by_hand())
        if self._runner.whole:
            doubts.append(Doubt.whole_runs(first.taken))
        elif first.ending != "full":
            doubts.append(Doubt.short_script(first.taken))
        if self._unmeasured:
            doubts.append(Doubt.not_measured(tuple(self._unmeasured)))
        if changed:
            doubts.append(Doubt.written(changed))
        return tuple(doubts)


def _fit(trace: Trace) -> Trace:
    """Give the trace of an original that can be measured; raises `ScriptError` for another."""
    if trace.failure is not None:
        raise ScriptError(trace.failure)
    if not trace.torch:
        raise ScriptError(Failure("idle", _TRAINS_ELSEWHERE if trace.processes else _NO_TORCH))
    if not trace.taken and trace.processes:
        raise ScriptError(Failure("idle", _TRAINS_ELSEWHERE))
    return trace
