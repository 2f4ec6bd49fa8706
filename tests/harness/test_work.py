"""Processor time, which decides where the time on the wall is too noisy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness.scripts import PLAIN, run_by, write

from torchlint.finding import Safety
from torchlint.harness.judging.assessment import (
    Evidence,
    assess,
    crowd,
    is_settled,
    judge_work,
    never_rests,
    work_noise,
    work_saved,
)
from torchlint.harness.judging.promise import Comparison
from torchlint.harness.judging.statistics import Interval, Speedup
from torchlint.harness.judging.verdict import Outcome, Verdict
from torchlint.harness.plan import Variant
from torchlint.harness.trace import Trace
from torchlint.report.verification import facts

QUIET = Interval(0.97, 1.03)
NOISY = Interval(0.6, 1.7)


def timed(seconds: float, step: float = 1.0, **fields: object) -> Trace:
    known: dict[str, object] = {"threads": 2, "durations": (step,) * 8, "work": (seconds,) * 8}
    return Trace("full", **{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [("threads", 1), ("helpers", 2), ("device", "cuda"), ("work", ()), ("joined", True)],
)
def test_work_is_compared_only_where_both_sides_do_it_alike(field: str, value: object) -> None:
    runs = [[timed(2.0), timed(2.0)]] * 2
    found = work_saved(runs, [[timed(1.0), timed(1.0)]] * 2)
    assert found == Speedup(2.0, 2.0, 2.0)
    fields: dict[str, Any] = {field: value}
    other = timed(1.0, **fields)
    assert work_saved(runs, [[timed(1.0), other]] * 2) is None


def test_the_noise_of_work_is_that_of_the_original_with_itself() -> None:
    assert work_noise([[timed(1.0)]]) is None
    assert work_noise([[timed(1.0), timed(1.0, work=())]]) is None
    assert work_noise([[timed(1.0), timed(1.0)]]) == Interval(0.99, 1.01)


@pytest.mark.parametrize(
    ("wall", "low", "high", "noise", "verdict"),
    [
        (1.8, 1.8, 2.2, QUIET, Verdict.FASTER),
        (0.9, 1.8, 2.2, QUIET, Verdict.UNSURE),
        (1.8, 1.02, 2.2, QUIET, Verdict.UNSURE),
        (1.8, 1.2, 2.2, NOISY, Verdict.UNSURE),
        (1.8, 1.8, 2.2, None, Verdict.UNSURE),
        (0.6, 0.4, 0.6, QUIET, Verdict.SLOWER),
        (1.1, 0.4, 0.6, QUIET, Verdict.UNSURE),
        (0.9, 0.8, 0.97, QUIET, Verdict.UNSURE),
    ],
)
def test_work_decides_where_it_is_clear_and_time_does_not_contradict_it(
    wall: float, low: float, high: float, noise: Interval | None, verdict: Verdict
) -> None:
    work = Speedup((low + high) / 2, low, high)
    assert judge_work(Speedup(wall, 0.5, 2.0), work, noise) is verdict


def test_what_disturbs_single_steps_is_no_work() -> None:
    disturbed = tuple(2.0 if at % 2 else 9.0 for at in range(8))
    other = tuple(9.0 if at % 2 else 2.0 for at in range(8))
    before = [[timed(0, work=disturbed), timed(0, work=other)]] * 2
    assert work_saved(before, [[timed(1.0), timed(1.0)]] * 2) == Speedup(2.0, 2.0, 2.0)
    assert work_noise(before) == Interval(0.99, 1.01)


@pytest.mark.parametrize(
    ("rest", "wall", "verdict"),
    [
        (0.1, Speedup(1.1, 0.7, 1.6), Verdict.SAME),
        (0.1, Speedup(1.4, 1.2, 1.6), Verdict.UNSURE),
        (1.0, Speedup(1.1, 0.7, 1.6), Verdict.UNSURE),
        (None, Speedup(1.1, 0.7, 1.6), Verdict.UNSURE),
    ],
)
def test_equal_work_is_equal_time_where_the_script_never_rests(
    rest: float | None, wall: Speedup, verdict: Verdict
) -> None:
    runs = [[timed(1.0, at_rest=rest)] * 2] * 2
    restless = never_rests(runs, [[timed(1.0, at_rest=0.0)] * 2])
    assert judge_work(wall, Speedup(1.0, 0.98, 1.03), QUIET, restless=restless) is verdict


@pytest.mark.parametrize(
    ("noise", "original", "other", "settled"),
    [
        (Interval(0.98, 1.02), {"work": ()}, {"work": ()}, True),
        (NOISY, {}, {}, True),
        (None, {}, {}, True),
        (NOISY, {}, {"helpers": 2}, False),
        (NOISY, {"at_rest": 4.0}, {}, False),
        (NOISY, {"work": ()}, {"work": ()}, False),
    ],
)
def test_no_more_rounds_are_needed_where_either_clock_can_decide(
    noise: Interval | None, original: dict[str, Any], other: dict[str, Any], settled: bool
) -> None:
    before, after = (timed(1.0, **{"at_rest": 0.1, **each}) for each in (original, other))
    first = Evidence(before, rounds=[[before, before]] * 2)
    side = Evidence(after, rounds=[[after, after]] * 2, originals=first.rounds)
    assert is_settled(noise, first, [side]) is settled


def outcome(after: Trace, noise: Interval | None) -> Outcome:
    before = timed(2.0)
    variant = Variant("rule", ("TL801",), Safety.EXACT, {})
    first, second = (Evidence(trace, rounds=[[trace, trace]] * 2) for trace in (before, after))
    return assess(variant, first, second, Comparison("equal", True, 8, 2), NOISY, noise)


def test_a_fix_that_saves_work_is_faster_on_a_noisy_machine() -> None:
    found = outcome(timed(1.0, step=0.9), QUIET)
    assert (found.verdict, found.work, found.doubts) == (Verdict.FASTER, Speedup(2, 2, 2), ())
    assert dict(facts(found))["processor time"] == (
        "2.00x (2.00x to 2.00x) in each step, which decides: wall time is too noisy"
    )
    unclear = outcome(timed(1.0, step=0.9), None)
    assert (unclear.verdict, unclear.work) == (Verdict.UNSURE, None)
    assert [doubt.name for doubt in unclear.doubts] == ["noisy-machine"]
    assert dict(facts(unclear))["processor time"] == ""


@pytest.mark.parametrize(
    ("others", "free", "found"), [(1.4, 0.1, (1.4, 0.1)), (1.4, 6.0, None), (0.2, 0.1, None)]
)
def test_a_machine_is_busy_where_others_leave_no_processor_free(
    others: float, free: float, found: tuple[float, float] | None
) -> None:
    runs = [timed(1.0, others=others, free=free)] * 3
    assert crowd([*runs, timed(1.0)]) == found


def test_a_run_counts_its_work_and_that_of_its_workers(tmp_path: Path) -> None:
    text = PLAIN.replace("x = torch.randn(8, 4)", "x = sum(torch.randn(8, 4) for _ in range(999))")
    trace = run_by(None, write(tmp_path, text), "time")
    assert len(trace.work) == len(trace.durations) == 6
    assert all(0 < work < 4 * time for work, time in zip(trace.work, trace.durations, strict=True))
    assert trace.threads > 0
    assert trace.helpers == 0
    assert trace.others is None or trace.others >= 0
    assert trace.at_rest is None or 0 <= trace.at_rest < sum(trace.durations)
