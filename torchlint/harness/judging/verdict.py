"""Verdicts: one for each fix, from its numbers and its times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from torchlint.harness.judging.anatomy import Bound, Step
from torchlint.harness.judging.doubt import Doubt
from torchlint.harness.judging.promise import Comparison
from torchlint.harness.judging.statistics import Interval, Speedup
from torchlint.harness.plan import ORIGINAL, Launcher, Variant
from torchlint.harness.trace import SyncSite

Decision = Literal["keep", "revert", "none"]

_MATTERS: Final = 0.05
"""The difference that the interval must exclude before two scripts count as equally fast."""


class Verdict(Enum):
    """The result for a fix."""

    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    DIFFERENT = "DIFFERENT"
    UNSURE = "UNSURE"


@dataclass(frozen=True, slots=True)
class Change:
    """A quantity of the original and of the fixed script, None where it was not measured."""

    before: float | None = None
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Curves:
    """The measurements of one side of a comparison, step by step."""

    times: tuple[tuple[tuple[float, ...], ...], ...] = ()
    """Seconds, nested by round, run and step of the window."""
    losses: tuple[float, ...] = ()
    """Every loss of the run for numbers."""
    loss_steps: tuple[int, ...] = ()
    """For each loss, the number of steps taken before it."""
    sync_sites: tuple[SyncSite, ...] = ()
    """The lines at which the host waited, most frequent first."""
    sync_steps: int = 0
    """The number of steps in which host syncs were counted."""
    step: Step | None = None
    """The phases of a step, where they were measured."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one variant."""

    variant: Variant
    verdict: Verdict
    comparison: Comparison | None = None
    speedup: Speedup | None = None
    work: Speedup | None = None
    """The ratio of processor times, where it decided because the time on the wall could not."""
    step_time: Change = Change()
    syncs: Change = Change()
    sync_sites: tuple[SyncSite, ...] = ()
    """Lines where the original waits, and the fixed script does not or less."""
    wait_share: Change = Change()
    host_memory: Change = Change()
    device_memory: Change = Change()
    reserved_memory: Change = Change()
    """What torch kept of the devices, which is more than tensors took."""
    energy: Change = Change()
    """Joules of the devices in each step."""
    warnings: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    rank_times: tuple[float, ...] = ()
    """Seconds of a step for each rank of the fixed script, where it has several."""
    before: Curves = Curves()
    after: Curves = Curves()

    @property
    def decision(self) -> Decision:
        """What to do with the fix."""
        return decide(self.verdict)


@dataclass(frozen=True, slots=True)
class Revision:
    """A git revision whose Python files are the original."""

    name: str
    commit: str
    others: tuple[str, ...] = ()
    """Files other than Python's that differ from it, of which both sides read the current ones."""


@dataclass(frozen=True, slots=True)
class Report:
    """One verification: the script, its device, and an outcome for each variant."""

    script: str
    args: tuple[str, ...]
    device: str
    torch: str
    seed: int
    steps: int
    warmup: int
    rounds: int
    noise: Interval | None
    outcomes: tuple[Outcome, ...]
    doubts: tuple[Doubt, ...] = ()
    diverted: tuple[str, ...] = ()
    """Files that the script would have written, and that were diverted."""
    changed: tuple[str, ...] = ()
    """Project files that changed despite the diversion."""
    launcher: Launcher | None = None
    whole: bool = False
    """Whether whole runs were timed, since there were too few steps."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """The devices of the network by name, with what their speed depends on."""
    partial: bool = False
    """Whether the verification was interrupted."""
    before: Variant = ORIGINAL
    """What the variants were compared with."""
    against: Revision | None = None
    """The git revision that is the original, None where that is the script as it is."""
    epoch_steps: float | None = None
    """Steps of an epoch, None where no loader shows them."""
    epochs: int | None = None
    """Epochs of the whole training, None where the script does not show them."""
    bound: Bound | None = None
    """What the original's steps wait for most."""
    price: float | None = None
    """What an hour of each device costs."""
    tolerated: float = 0.0
    """The slowdown up to which a slower variant does not fail, as a share of a step."""
    apply_command: str = ""
    """The command line that writes what was kept."""
    longer_command: str = ""
    """The command line that measures longer."""

    @property
    def devices(self) -> int:
        """The number of devices in use."""
        ranks = 1 if self.launcher is None else self.launcher.nproc_per_node * self.launcher.nnodes
        return max(1, ranks, len(self.machine.get("indices", ())))

    @property
    def failed(self) -> bool:
        """Whether a fix failed: it is slower, or its numbers are off."""
        return any(self.fails(outcome) for outcome in self.outcomes)

    def fails(self, outcome: Outcome) -> bool:
        """Return whether a variant failed; a tolerated slowdown does not."""
        if outcome.verdict is Verdict.SLOWER and outcome.speedup is not None:
            return outcome.speedup.high < 1 / (1 + self.tolerated)
        return outcome.decision == "revert"


def judge_speed(speedup: Speedup, noise: Interval) -> Verdict:
    """Return the verdict on speed: a difference counts if the interval lies outside the noise."""
    if speedup.low > max(1.0, noise.high):
        return Verdict.FASTER
    if speedup.high < min(1.0, noise.low):
        return Verdict.SLOWER
    if max(speedup.high - 1, 1 - speedup.low) <= _MATTERS:
        return Verdict.SAME
    return Verdict.UNSURE


def speed_doubt(speedup: Speedup, noise: Interval, rounds: int, work: Speedup | None) -> Doubt:
    """Return why the speed could not be judged after so many rounds, and how many would do.

    `work` is the ratio of processor times, where that can decide.
    """
    includes_even = speedup.low <= 1.0 <= speedup.high
    noisy = noise.high - noise.low
    width = speedup.high - speedup.low
    # An interval shrinks with the root of the number of rounds, that of a least time faster.
    enough = rounds * ((width if includes_even else max(width, noisy)) / _MATTERS) ** 2
    if work is not None:
        enough = min(enough, rounds * (work.high - work.low) / _MATTERS)
    enough = max(2 * rounds, math.ceil(enough))
    if not includes_even or noisy > 2 * _MATTERS:
        return Doubt.noisy_machine(noise.low, noise.high, enough)
    return Doubt.wide_interval(enough)


def decide(verdict: Verdict) -> Decision:
    """Return `keep` for faster, `revert` for slower or wrong, and `none` otherwise."""
    if verdict is Verdict.FASTER:
        return "keep"
    return "revert" if verdict in (Verdict.SLOWER, Verdict.DIFFERENT) else "none"


def candidates(report: Report) -> tuple[str, ...]:
    """Return the rules whose fixes were kept.

    For those not measured alone, the result of all fixes together counts, and for all of them
    where alone none of them was kept or reverted.
    """
    by_codes = {outcome.variant.codes: outcome for outcome in report.outcomes}
    alone = {codes: outcome for codes, outcome in by_codes.items() if len(codes) == 1}
    kept = {codes[0] for codes, outcome in alone.items() if outcome.decision == "keep"}
    unjudged = all(outcome.decision == "none" for outcome in alone.values())
    for outcome in report.outcomes:
        if outcome.variant.kind == "all" and outcome.decision == "keep":
            kept |= {code for code in outcome.variant.codes if unjudged or (code,) not in alone}
    return tuple(sorted(kept))


def together(report: Report, codes: tuple[str, ...]) -> Outcome | None:
    """Return the outcome of exactly these rules' fixes, None where they were not measured."""
    return next((found for found in report.outcomes if found.variant.codes == codes), None)


def kept_together(report: Report) -> tuple[str, ...]:
    """Return the rules whose fixes may be written: kept, sound and not slower together."""
    codes = candidates(report)
    outcome = together(report, codes)
    if outcome is None or outcome.verdict in (Verdict.SLOWER, Verdict.DIFFERENT):
        return ()
    return codes if outcome.comparison is not None and outcome.comparison.kept else ()
