"""The outcome of one variant: pure arithmetic on traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Final

from torchlint.harness.judging.anatomy import usual_step
from torchlint.harness.judging.doubt import NOT_TIMED, OTHER_LAUNCH, SAVES_WAITS, TIMED_ONCE, Doubt
from torchlint.harness.judging.promise import Comparison
from torchlint.harness.judging.statistics import (
    Interval,
    Speedup,
    least,
    level,
    noise_band,
    share,
    speedup,
    step_time,
)
from torchlint.harness.judging.verdict import (
    Change,
    Curves,
    Outcome,
    Verdict,
    judge_speed,
    speed_doubt,
)
from torchlint.harness.plan import Variant
from torchlint.harness.runs.crowd import is_crowded
from torchlint.harness.trace import Failure, SyncSite, Trace

_DEVICE_RULES: Final = ("TL2", "TL102", "TL3")
"""Code prefixes of fixes whose gain is on an accelerator."""
Runs = list[list[Trace]]

_MATTERS: Final = 0.05
"""The difference that the interval must exclude before processor time decides."""
_RESTS: Final = 0.05
"""The share of a window up to which a script counts as computing all the time."""
_SETTLED: Final = 0.05
"""The width of the noise band at which more rounds would decide little.

The interval of a change without effect is about as wide, and must lie within 5 % of even speed.
"""


@dataclass(slots=True)
class Evidence:
    """The runs of one text: for numbers, for host syncs, and the timed ones by round."""

    numbers: Trace
    syncs: Trace | None = None
    timeline: Trace | None = None
    rounds: list[list[Trace]] = field(default_factory=list)
    originals: list[list[Trace]] = field(default_factory=list)
    """The runs of the original before and after those of a variant, by round."""

    @property
    def timed(self) -> list[Trace]:
        """All timed runs."""
        return [trace for traces in self.rounds for trace in traces]

    @property
    def broken(self) -> Failure | None:
        """Why a timed run did not complete its window, None where all did."""
        for trace in self.timed:
            if trace.ending == "failed" or not trace.durations:
                return trace.failure or Failure("exit", "it ended before the window was full")
        return None


def durations(rounds: Iterable[Iterable[Trace]]) -> list[list[tuple[float, ...]]]:
    """Return the step times of timed runs, by round."""
    return [[trace.durations for trace in traces] for traces in rounds]


def place(failure: Failure) -> str:
    """Return the place of a failure as ` at file:line`, empty where it is unknown."""
    return f" at {failure.file}:{failure.line}" if failure.line else ""


def assess(
    variant: Variant,
    before: Evidence,
    after: Evidence,
    comparison: Comparison | None,
    noise: Interval | None,
    work_noise: Interval | None = None,
) -> Outcome:
    """Judge one variant by its runs and the original's; `comparison` is None if it failed."""
    work: Speedup | None = None
    doubts = [] if comparison is None or comparison.doubt is None else [comparison.doubt]
    gain = None
    if comparison is not None and comparison.thin:
        doubts.append(Doubt.few_losses(comparison.losses))
    if after.numbers.joined and not before.numbers.joined:
        doubts.append(OTHER_LAUNCH)
    timed = bool(after.rounds) and after.broken is None
    times = level(durations(before.rounds), durations(after.rounds)) if timed else []
    if comparison is None:
        verdict, doubt = _judge_failure(variant, after.numbers.failure)
        doubts.append(doubt)
    elif comparison.kept is False:
        verdict = Verdict.DIFFERENT
    elif not after.rounds:
        verdict = Verdict.UNSURE
        doubts.append(NOT_TIMED)
    elif after.broken is not None:
        verdict = Verdict.UNSURE
        doubts.append(Doubt.run_failed(after.broken.message + place(after.broken)))
    elif noise is None:
        gain = speedup(times[0], times[1])
        verdict = Verdict.UNSURE
        doubts.append(TIMED_ONCE)
    else:
        gain = speedup(times[0], times[1])
        verdict = judge_speed(gain, noise)
        if verdict is Verdict.UNSURE:
            work = work_saved(before.rounds, after.rounds)
            restless = never_rests(before.rounds, after.rounds)
            verdict = judge_work(gain, work, work_noise, restless=restless)
        if verdict is Verdict.UNSURE:
            doubts.append(speed_doubt(gain, noise, len(after.rounds), work if restless else None))
            work = None
        if verdict is Verdict.SLOWER and _is_for_accelerators(variant, before.numbers.device):
            doubts.append(Doubt.slower_on_this_device(before.numbers.device))
        if comparison.kept is None and verdict is not Verdict.SLOWER:
            verdict = Verdict.UNSURE
    doubts += _compiled(before, after)
    syncs = Change(syncs_per_step(before.syncs), syncs_per_step(after.syncs))
    if before.numbers.device == "cpu" and verdict in (Verdict.SAME, Verdict.UNSURE):
        doubts += [SAVES_WAITS] if _saves(syncs) else []
    idle, reached = after.numbers.idle, after.numbers
    if idle and comparison is not None:
        part = len(idle) < reached.changed
        text = "the working tree" if variant.kind == "tree" else "the fixed text"
        doubts.append(Doubt.not_exercised(idle, reached.taken, reached.epoch, part=part, text=text))
        if not part and verdict in (Verdict.FASTER, Verdict.SAME):
            verdict = Verdict.UNSURE
    return Outcome(
        variant=variant,
        verdict=verdict,
        comparison=comparison,
        speedup=gain,
        work=work,
        step_time=Change(*map(step_time, times)),
        syncs=syncs,
        sync_sites=_saved(before.syncs, after.syncs),
        wait_share=_change(before, after, _wait_share),
        host_memory=_change(before, after, _host_memory),
        device_memory=_change(before, after, _device_memory),
        reserved_memory=_change(before, after, _reserved_memory),
        energy=_change(before, after, _energy),
        warnings=_new_warnings(before.timed, after.timed),
        doubts=tuple(doubts),
        rank_times=_rank_times(after),
        before=_curves(before),
        after=_curves(after),
    )


def _compiled(before: Evidence, after: Evidence) -> list[Doubt]:
    """Return a doubt for each side whose steps were compiled while they were timed."""
    found = []
    for side, name in ((before, "the original"), (after, "the fixed script")):
        graphs = max((trace.compiles for trace in side.timed), default=0)
        found += [Doubt.compiled_while_timed(graphs, name)] if graphs else []
    return found


def _curves(side: Evidence) -> Curves:
    times = tuple(tuple(trace.durations for trace in traces) for traces in side.rounds)
    syncs = side.syncs if syncs_per_step(side.syncs) is not None else None
    return Curves(
        times=times,
        losses=side.numbers.losses,
        loss_steps=side.numbers.loss_steps,
        sync_sites=syncs.syncs if syncs else (),
        sync_steps=syncs.sync_steps if syncs else 0,
        step=usual_step(side.timeline),
    )


def _judge_failure(variant: Variant, failure: Failure | None) -> tuple[Verdict, Doubt]:
    failure = failure or Failure("exit", "it took no steps")
    which = "in the working tree" if variant.kind == "tree" else "with this fix"
    doubt = Doubt.fixed_fails(failure.message, place(failure), which)
    chance = failure.kind == "timeout" or failure.shared
    return (Verdict.UNSURE if chance else Verdict.DIFFERENT), doubt


def _is_for_accelerators(variant: Variant, device: str) -> bool:
    return device == "cpu" and any(code.startswith(_DEVICE_RULES) for code in variant.codes)


def _change(
    before: Evidence, after: Evidence, measure: Callable[[Evidence], float | None]
) -> Change:
    return Change(
        *(
            measure(side) if side.rounds and side.broken is None else None
            for side in (before, after)
        )
    )


def _rank_times(side: Evidence) -> tuple[float, ...]:
    ranks = zip(*(trace.rank_times for trace in side.timed), strict=False)
    return tuple(median(times) for times in ranks)


def _wait_share(side: Evidence) -> float | None:
    waits = [trace.waited for trace in side.timed if trace.waited is not None]
    return share(waits, durations(side.rounds)) if len(waits) == len(side.timed) else None


def _host_memory(side: Evidence) -> float | None:
    return median(trace.host_memory + trace.worker_memory for trace in side.timed)


def _device_memory(side: Evidence) -> float | None:
    peaks = [trace.device_memory for trace in side.timed if trace.device_memory is not None]
    return median(peaks) if peaks else None


def _reserved_memory(side: Evidence) -> float | None:
    known = [trace.memories for trace in side.timed if trace.memories]
    return median(sum(held for _, held in each) for each in known) if known else None


def _energy(side: Evidence) -> float | None:
    known = [trace.energy for trace in side.timed if trace.energy is not None]
    return median(known) if len(known) == len(side.timed) else None


def syncs_per_step(trace: Trace | None) -> float | None:
    """Return how often the host waits in a step, None where that was not counted."""
    if trace is None or trace.ending == "failed" or not trace.sync_steps:
        return None
    return sum(site.count for site in trace.syncs) / trace.sync_steps


def _saves(syncs: Change) -> bool:
    return syncs.before is not None and syncs.after is not None and syncs.after < syncs.before


def _saved(before: Trace | None, after: Trace | None) -> tuple[SyncSite, ...]:
    """Return the lines of the original that wait more often than the variant, if it saves any."""
    if before is None or after is None:
        return ()
    if not before.sync_steps or sum(site.count for site in after.syncs) >= sum(
        site.count for site in before.syncs
    ):
        return ()
    left: Counter[tuple[str, str]] = Counter()
    for site in after.syncs:
        left[site.file, site.call] += site.count
    return tuple(site for site in before.syncs if left[site.file, site.call] < site.count)


def _new_warnings(before: Sequence[Trace], after: Sequence[Trace]) -> tuple[str, ...]:
    known = {text for trace in before for text in trace.warnings}
    return tuple(dict.fromkeys(t for trace in after for t in trace.warnings if t not in known))


def work_saved(before: Runs, after: Runs) -> Speedup | None:
    """Return the ratio of processor time per step, None where the two cannot be compared.

    Both sides must run on the CPU alone, with the same number of threads and of workers.
    """
    if not _have_like_work(before, after):
        return None
    return speedup(_works(before), _works(after), least)


def _have_like_work(before: Runs, after: Runs) -> bool:
    traces = [trace for rounds in (before, after) for runs in rounds for trace in runs]
    alike = len({(trace.threads, trace.helpers) for trace in traces}) == 1
    return alike and _have_work(before, after)


def work_noise(original: Runs) -> Interval | None:
    """Return the noise of the original's processor time, None where it was not measured."""
    paired = [runs for runs in original if len(runs) > 1]
    if not paired or not _have_work(paired):
        return None
    return noise_band(_works(paired), least)


def judge_work(
    wall: Speedup, work: Speedup | None, noise: Interval | None, *, restless: bool = False
) -> Verdict:
    """Return the verdict by processor time, UNSURE where the time on the wall contradicts it.

    Equal work means equal time only for scripts that never rest, `restless`.
    """
    if work is None or noise is None:
        return Verdict.UNSURE
    if work.low > max(1 + _MATTERS, noise.high) and wall.ratio > 1:
        return Verdict.FASTER
    if work.high < min(1 / (1 + _MATTERS), noise.low) and wall.ratio < 1:
        return Verdict.SLOWER
    even = max(work.high - 1, 1 - work.low) <= _MATTERS
    if even and restless and wall.low <= 1 + _MATTERS and wall.high >= 1 - _MATTERS:
        return Verdict.SAME
    return Verdict.UNSURE


def never_rests(*sides: Runs) -> bool:
    """Return whether the script's thread always has something to compute."""
    return all(median(map(_share_at_rest, chain(*rounds))) <= _RESTS for rounds in sides)


def is_settled(noise: Interval | None, original: Evidence, sides: Iterable[Evidence]) -> bool:
    """Return whether two runs of the original differ so little that more rounds decide little.

    By wall time, or by processor time where that can decide about every side.
    """
    alike = all(_have_like_work(side.originals, side.rounds) for side in sides)
    decides = alike and never_rests(original.rounds)
    bands = (noise, work_noise(original.rounds) if decides else None)
    return any(band is not None and band.high - band.low <= _SETTLED for band in bands)


def crowd(traces: Iterable[Trace]) -> tuple[float, float] | None:
    """Return the processors that others used and that were free, where others disturbed a run."""
    seen = [trace for trace in traces if trace.others is not None and trace.free is not None]
    others = median([trace.others or 0.0 for trace in seen] or [0.0])
    free = median([trace.free or 0.0 for trace in seen] or [0.0])
    return (others, free) if is_crowded(others, free) else None


def _have_work(*sides: Runs) -> bool:
    """Return whether every run is alone on the CPU, and has the work of as many steps."""
    traces = [trace for side in sides for runs in side for trace in runs]
    alone = all(trace.device == "cpu" and not trace.joined for trace in traces)
    counts = {len(trace.work) if sum(trace.work) > 0 else 0 for trace in traces}
    return alone and len(counts) == 1 and counts != {0}


def _works(rounds: Runs) -> list[list[tuple[float, ...]]]:
    return [[trace.work for trace in runs] for runs in rounds]


def _share_at_rest(trace: Trace) -> float:
    return 1.0 if trace.at_rest is None else trace.at_rest / sum(trace.durations)
