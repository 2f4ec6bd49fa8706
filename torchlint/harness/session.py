"""One verification: which runs there are, in which order, and what is made of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final

from torchlint.harness import process, tree
from torchlint.harness.assessment import Evidence, assess, durations
from torchlint.harness.doubt import Doubt
from torchlint.harness.plan import ORIGINAL, Mode, Plan, Task, Variant
from torchlint.harness.promise import Comparison, compare
from torchlint.harness.statistics import Interval, noise_band
from torchlint.harness.trace import Failure, Trace
from torchlint.harness.verdict import Outcome, Report

__all__ = ["ScriptError", "Session"]

_SYNC_WARMUP: Final = 3
_SYNC_STEPS: Final = 10
_FEWEST: Final = 8
"""Steps that a script must take to be timed."""

_NEVER_STEPPED: Final = "no torch optimizer took a step in it, so there is nothing to measure"
_TRAINS_ELSEWHERE: Final = (
    "no torch optimizer took a step in it, but it starts processes of its own: "
    "verify the script that trains"
)
_OTHER_DEVICE: Final = "it was to train on {}, and it trained on {}: say so in its arguments"

Notify = Callable[[int, int], None]
"""Is told how many runs are done, of how many (0 while that is not known)."""


class ScriptError(Exception):
    """The original script cannot be measured; `failure` says why and where."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Session:
    """The runs of one verification, in a folder that is gone when it is over."""

    def __init__(self, plan: Plan, notify: Notify | None = None) -> None:
        self._plan = plan
        self._script = plan.script.resolve()
        self._root = tree.project_root(self._script)
        self._notify = notify
        self._folder = tempfile.TemporaryDirectory(prefix="torchlint-", ignore_cleanup_errors=True)
        self._runs = 0
        self._expected = 0
        self._before = tree.snapshot(self._root)
        self._first: Trace | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def survey(self) -> tuple[str, ...]:
        """Run the original once; give the project's files that it is made of.

        Raises `ScriptError` for a script that cannot be measured.
        """
        self._first = _fit(self._run(ORIGINAL, "numbers"))
        wanted = self._plan.device.partition(":")[0]
        if wanted not in ("auto", self._first.device):
            raise ScriptError(Failure("idle", _OTHER_DEVICE.format(wanted, self._first.device)))
        return self._first.modules

    def measure(self, variants: Sequence[Variant]) -> Report:
        """Run every variant against the original, and say what came out."""
        if self._first is None:
            self.survey()
        first = self._first
        assert first is not None
        distinct = [
            variant
            for at, variant in enumerate(variants)
            if all(variant.texts != other.texts for other in variants[:at])
        ]
        window = self._window(first)
        if not distinct:
            return self._report(first, None, None, ())
        self._expect(len(distinct), len(distinct) if window is not None else 0)
        again = _fit(self._run(ORIGINAL, "numbers"))
        original = Evidence(first)
        fixed = [Evidence(self._run(variant, "numbers")) for variant in distinct]
        sound = [
            (variant, evidence)
            for variant, evidence in zip(distinct, fixed, strict=True)
            if _is_sound(_comparison(first, again, evidence, variant))
        ]
        if sound:
            for variant, evidence in ((ORIGINAL, original), *sound):
                evidence.syncs = self._run(variant, "syncs")
        if sound and window is not None:
            self._expect(len(distinct), len(sound))
            self._time(original, sound, window)
        noise = noise_band(durations(original.rounds)) if original.rounds else None
        evidence_of = [
            next(e for v, e in zip(distinct, fixed, strict=True) if v.texts == variant.texts)
            for variant in variants
        ]
        outcomes = tuple(
            assess(
                variant,
                replace(original, rounds=evidence.beside),
                evidence,
                _comparison(first, again, evidence, variant),
                noise,
            )
            for variant, evidence in zip(variants, evidence_of, strict=True)
        )
        return self._report(first, window, noise, outcomes)

    def _report(
        self,
        first: Trace,
        window: tuple[int, int] | None,
        noise: Interval | None,
        outcomes: tuple[Outcome, ...],
    ) -> Report:
        warmup, steps = window or (0, 0)
        return Report(
            script=str(self._plan.script),
            args=self._plan.args,
            device=first.device,
            torch=first.torch,
            seed=self._plan.seed,
            steps=steps,
            warmup=warmup,
            rounds=self._plan.rounds,
            noise=noise,
            outcomes=outcomes,
            doubts=self._doubts(first, window) if outcomes else (),
        )

    def _time(
        self,
        original: Evidence,
        fixed: Sequence[tuple[Variant, Evidence]],
        window: tuple[int, int],
    ) -> None:
        """Time each variant twice between two runs of the original, in every round.

        What slows the machine for a while slows a variant and the originals beside it.
        """
        for _ in range(self._plan.rounds):
            before = self._run(ORIGINAL, "time", window)
            original.rounds.append([before])
            for variant, evidence in fixed:
                evidence.rounds.append([self._run(variant, "time", window) for _ in range(2)])
                after = self._run(ORIGINAL, "time", window)
                evidence.beside.append([before, after])
                original.rounds[-1].append(after)
                before = after
        if original.broken is not None:
            raise ScriptError(original.broken)

    def _window(self, first: Trace) -> tuple[int, int] | None:
        """Give warm-up and steps to time, less of both for a script that ends early."""
        plan = self._plan
        if first.ending == "full":
            return plan.warmup, plan.steps
        if first.taken < _FEWEST:
            return None
        warmup = min(plan.warmup, first.taken // 4)
        return warmup, min(plan.steps, first.taken - warmup)

    def _doubts(self, first: Trace, window: tuple[int, int] | None) -> tuple[Doubt, ...]:
        doubts = []
        if window is None:
            doubts.append(Doubt.too_few_steps(first.taken))
        elif window != (self._plan.warmup, self._plan.steps):
            doubts.append(Doubt.short_script(first.taken))
        changed = tree.changes(self._before, self._root)
        if changed:
            doubts.append(Doubt.written(changed))
        return tuple(doubts)

    def _run(self, variant: Variant, mode: Mode, window: tuple[int, int] | None = None) -> Trace:
        """Run the script once, as `variant` has it, for what `mode` says."""
        plan = self._plan
        warmup, steps = window or (plan.warmup, plan.steps)
        if mode == "syncs":
            warmup, steps = _SYNC_WARMUP, _SYNC_STEPS
        if self._notify is not None:
            self._notify(self._runs, self._expected)
        self._runs += 1
        folder = Path(self._folder.name)
        task = Task(
            script=str(self._script),
            args=plan.args,
            root=str(self._root),
            folder=str(folder / f"run-{self._runs}"),
            mode=mode,
            steps=steps,
            warmup=warmup,
            seed=plan.seed,
            texts=variant.texts,
            leader=self._first.leader if self._first is not None else None,
            reference=str(folder / "parameters.pt"),
        )
        return process.run(task, device=plan.device, timeout=plan.timeout, verbose=plan.verbose)

    def _expect(self, variants: int, timed: int) -> None:
        in_turns = self._plan.rounds * (3 * timed + 1) if timed else 0
        self._expected = 3 + variants + timed + in_turns


def _comparison(first: Trace, again: Trace, fixed: Evidence, variant: Variant) -> Comparison | None:
    """Compare the numbers of a fixed run, None where it failed."""
    if fixed.numbers.ending == "failed" or not fixed.numbers.taken:
        return None
    return compare(first, again, fixed.numbers, variant.safety)


def _is_sound(comparison: Comparison | None) -> bool:
    """Whether a variant is worth timing: it runs, and nothing shows that its numbers are off."""
    return comparison is not None and comparison.kept is not False


def _fit(trace: Trace) -> Trace:
    """Give the trace of an original that can be measured; raises `ScriptError` for another."""
    if trace.failure is not None:
        raise ScriptError(trace.failure)
    if not trace.taken:
        message = _TRAINS_ELSEWHERE if trace.processes else _NEVER_STEPPED
        raise ScriptError(Failure("idle", message))
    return trace
