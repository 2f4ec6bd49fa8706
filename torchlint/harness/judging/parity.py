"""Equality of numbers: the runs that prove it, from the cheapest to the last resort."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from torchlint.finding import Safety
from torchlint.harness.judging.doubt import ROUNDED_AWAY, Doubt
from torchlint.harness.judging.promise import (
    SEEDS,
    Comparison,
    compare,
    compare_aligned,
    compare_led,
    compare_nudged,
    compare_output,
    compare_repeated,
    compare_seeds,
    starts_alike,
)
from torchlint.harness.plan import ORIGINAL, Mode, Variant
from torchlint.harness.trace import Trace

Start = Callable[[Variant, Mode, int], Trace]
"""Runs a variant in a mode, with an offset for its seeds."""

_CONFIRMED: Final = 3
"""Runs of the original that call an exact fix wrong, where they are equal."""
_STRAYING: Final = 5
"""Runs of the original that show how far it strays, where they are not."""

_LED: Final = "one rounding leads the fixed script as far as it lies from the original"
_SHARES: Final = "batch norm sees only the share of a batch that each process gets"

Fits = Callable[[int], bool]
"""Returns whether there is time for so many more runs."""
_MOVED: Final = 0.05
"""The share by which a clock may change within a window."""


class Parity:
    """The numbers of the original, with which those of every variant are compared."""

    def __init__(
        self, start: Start, first: Trace, fits: Fits, original: Variant = ORIGINAL
    ) -> None:
        self._start = start
        self._original = original
        self._first = first
        self._fits = fits
        self._again: Trace | None = None
        self._more: list[Trace] = []
        self._nudged: Trace | None = None
        self._aligned: tuple[Trace, Trace] | None = None
        self._curves: list[Trace] | None = None

    @property
    def again(self) -> Trace:
        """A second run of the original, which shows how repeatable it is."""
        if self._again is None:
            self._again = self._start(self._original, "numbers", 0)
        return self._again

    @property
    def nudged(self) -> Trace:
        """A run of the original that moves its weights by one rounding in each step."""
        if self._nudged is None:
            self._nudged = self._start(self._original, "nudged", 0)
        return self._nudged

    def compare(self, variant: Variant, fixed: Trace) -> Comparison | None:
        """Compare the numbers of a fixed run, None where it failed."""
        if fixed.ending == "failed" or bool(fixed.taken) != bool(self._first.taken):
            return None
        if fixed.diverged and not self._first.joined:
            return Comparison("different", False, len(fixed.losses), 0, method="ranks")
        comparison = self._as_is(fixed, variant.safety, self._first)
        if comparison.kept:
            return comparison
        if self._again is None and not self._fits(1):
            return _open(comparison, "they are not equal to the original's")
        comparison = self._as_is(fixed, variant.safety, self.again)
        if not variant.judged:
            return _as_information(comparison)
        if comparison.method == "output":
            return comparison
        if variant.safety == Safety.CLOSE and comparison.kept is False and self._first.taken:
            return self._as_rounded(fixed, comparison)
        wrong = variant.safety == Safety.EXACT and comparison.kept is False
        stray = variant.safety != Safety.UNSAFE and comparison.doubt is not None
        if self._first.taken and (wrong or stray):
            repeated = self._repeated(variant, fixed, comparison)
            if variant.safety == Safety.CLOSE and repeated.kept is False:
                return self._as_rounded(fixed, repeated)
            return repeated
        promised = variant.safety != Safety.UNSAFE and comparison.doubt is None
        if promised or comparison.word in ("equal", "close") or not self._first.taken:
            return comparison
        if not self._fits(1 if self._aligned else 3):
            return _open(comparison, "they are not close to the original's")
        replayed = self._replayed(variant)
        if isinstance(replayed, str):
            return self._last(variant, comparison, replayed)
        aligned, replay = replayed
        shared = fixed.joined and not self._first.joined and self._first.batch_norm
        if aligned.kept is False and shared:
            return self._last(variant, aligned, _SHARES)
        return self._as_led(variant, replay, aligned) if aligned.kept is False else aligned

    def _as_led(self, variant: Variant, replay: Trace, aligned: Comparison) -> Comparison:
        """Compare with what roundings lead the fixed script to; `aligned` says that it differs."""
        if self._aligned is None or not starts_alike(self._aligned[0], replay):
            return aligned
        if not self._fits(1):
            return _open(aligned, "they are not close to the original's")
        nudged = self._start(variant, "nudged-replay", 0)
        return compare_led(self._aligned[0], replay, nudged) or self._last(variant, aligned, _LED)

    def _as_rounded(self, fixed: Trace, plain: Comparison) -> Comparison:
        """Compare with what roundings lead to; `plain` says that the numbers are not close."""
        if self._nudged is None and not self._fits(1):
            return _open(plain, "they are not close to the original's")
        found = compare_nudged(self._first, self.nudged, fixed)
        return found or replace(plain, word="not-compared", kept=None, doubt=ROUNDED_AWAY)

    def _repeated(self, variant: Variant, fixed: Trace, plain: Comparison) -> Comparison:
        """Run both once more before an exact fix counts as wrong, and more often if they stray."""
        runs = [fixed]
        for count in (_CONFIRMED, _STRAYING):
            missing = max(0, count - 2 - len(self._more))
            if not self._fits(missing + 1):
                return _open(plain, "they are not equal to the original's")
            self._more += [self._start(self._original, "numbers", 0) for _ in range(missing)]
            runs.append(self._start(variant, "numbers", 0))
            comparison = compare_repeated([self._first, self.again, *self._more], runs, plain)
            if comparison.word == "equal" or comparison == plain:
                return comparison
        return comparison

    def _as_is(self, fixed: Trace, safety: Safety, again: Trace) -> Comparison:
        """Compare the numbers of plain runs; `again` shows how repeatable the original is."""
        if not self._first.losses and not self._first.taken:
            return compare_output(self._first, again, fixed)
        return compare(self._first, again, fixed, safety)

    def _replayed(self, variant: Variant) -> tuple[Comparison, Trace] | str:
        """Compare both on the original's weights, the same batches and the same seeds.

        It returns the fixed run as well, or why they cannot be compared so.
        """
        if self._aligned is None:
            record = self._start(self._original, "record", 0)
            fits = not record.misaligned and record.ending != "failed"
            self._aligned = (record, self._start(self._original, "replay", 0) if fits else record)
        record, again = self._aligned
        unfit = compare_aligned(record, again, again, variant.safety)
        if isinstance(unfit, str):
            return unfit
        replay = self._start(variant, "replay", 0)
        found = compare_aligned(record, again, replay, variant.safety)
        return found if isinstance(found, str) else (found, replay)

    def _last(self, variant: Variant, comparison: Comparison, why: str) -> Comparison:
        """Run both with several seeds, which can only judge fixes that promise no numbers."""
        if variant.safety != Safety.UNSAFE:
            return comparison
        if not self._fits(SEEDS if self._curves else 2 * SEEDS):
            why = f"nothing could be compared on the original's weights and batches ({why})"
            return _open(comparison, why)
        shifts = range(1, SEEDS + 1)
        if self._curves is None:
            self._curves = [self._start(self._original, "numbers", shift) for shift in shifts]
        fixed = [self._start(variant, "numbers", shift) for shift in shifts]
        return replace(compare_seeds(self._curves, fixed), note=why)


def _as_information(comparison: Comparison) -> Comparison:
    """Return the comparison without a judgment; where there is none, its note says why."""
    note = "" if comparison.doubt is None else "two runs of the original differ"
    return replace(comparison, kept=True, doubt=None, note=note)


def _open(comparison: Comparison, why: str) -> Comparison:
    return replace(comparison, kept=None, doubt=Doubt.numbers_open(why))


def throttled(trace: Trace) -> tuple[str, ...]:
    """Return what slowed a device down at either end of the window."""
    reasons = (reason for state in _states(trace) for reason in state.get("throttled") or ())
    return tuple(dict.fromkeys(reasons))


def state_doubts(timed: Iterable[Trace], repeated: int) -> list[Doubt]:
    """Return doubts about devices that were slowed down, shared, or changed their clock.

    `repeated` runs were made again, since a device was slowed down.
    """
    traces = list(timed)
    doubts = []
    reasons = dict.fromkeys(reason for trace in traces for reason in throttled(trace))
    if reasons or repeated:
        doubts.append(Doubt.throttled(tuple(reasons), repeated))
    # Ranks of one script may share a device.
    alone = [trace for trace in traces if not trace.joined]
    others = max((_others(trace) for trace in alone), default=0)
    if others:
        doubts.append(Doubt.shared_device(others))
    moved = [clocks for trace in traces for clocks in _clocks(trace)]
    worst = max(moved, key=lambda clocks: abs(clocks[1] - clocks[0]), default=(0, 0))
    if abs(worst[1] - worst[0]) > _MOVED * max(worst):
        doubts.append(Doubt.clock_moved(*worst))
    return doubts


def _states(trace: Trace) -> list[Any]:
    return [state for end in trace.states for state in end]


def _others(trace: Trace) -> int:
    return max((state.get("other_processes") or 0 for state in _states(trace)), default=0)


def _clocks(trace: Trace) -> list[tuple[int, int]]:
    """Return the clock of each device at both ends."""
    if len(trace.states) != 2:
        return []
    ends = ([state.get("sm_clock_mhz") or 0 for state in end] for end in trace.states)
    return [pair for pair in zip(*ends, strict=True) if all(pair)]
