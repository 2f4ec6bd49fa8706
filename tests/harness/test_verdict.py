"""Promises and verdicts, on made-up traces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from torchlint.finding import Safety
from torchlint.harness.judging.assessment import Evidence, assess
from torchlint.harness.judging.promise import Comparison, Word, compare
from torchlint.harness.judging.statistics import Interval, Speedup
from torchlint.harness.judging.verdict import Verdict, decide, judge_speed, speed_doubt
from torchlint.harness.plan import Variant
from torchlint.harness.trace import Failure, ParameterMatch, SyncSite, Trace

SAME = ParameterMatch(True, 2, 2, 0.0)
LOSSES = tuple(1 / (step + 1) for step in range(20))
ORIGINAL = Trace(
    "full", taken=20, losses=LOSSES, loss_steps=tuple(range(20)), parameters=SAME, torch="2"
)
NOISE = Interval(0.98, 1.02)
BUSY = Interval(0.9, 1.1)


def nudged(by: float, start: int = 0) -> Trace:
    """A run whose losses are off by a factor from a step on, and its parameters with them."""
    losses = tuple(loss * (1 + by) if step >= start else loss for step, loss in enumerate(LOSSES))
    return replace(ORIGINAL, losses=losses, parameters=ParameterMatch(True, 2, 1, by))


@pytest.mark.parametrize(
    ("fixed", "safety", "word", "kept"),
    [
        (ORIGINAL, Safety.EXACT, "equal", True),
        (nudged(1e-9), Safety.EXACT, "close", False),
        (
            replace(ORIGINAL, parameters=ParameterMatch(True, 2, 1, 1e-9)),
            Safety.EXACT,
            "close",
            False,
        ),
        (nudged(1e-6), Safety.CLOSE, "close", True),
        (nudged(1e-4), Safety.CLOSE, "different", False),
        (nudged(1e-4, start=12), Safety.CLOSE, "close", True),
        (nudged(1e-2, start=12), Safety.CLOSE, "different", False),
        (ORIGINAL, Safety.UNSAFE, "equal", True),
        (nudged(1e-6), Safety.UNSAFE, "close", True),
        (nudged(1e-2), Safety.UNSAFE, "different", None),
        (replace(ORIGINAL, losses=LOSSES[:-1]), Safety.EXACT, "different", False),
        (
            replace(ORIGINAL, parameters=ParameterMatch(False, 1, 0, 0)),
            Safety.EXACT,
            "different",
            False,
        ),
        (
            replace(ORIGINAL, parameters=ParameterMatch(False, 1, 0, 0)),
            Safety.UNSAFE,
            "not-compared",
            None,
        ),
    ],
)
def test_numbers_are_held_against_the_promise(
    fixed: Trace, safety: Safety, word: str, kept: bool | None
) -> None:
    comparison = compare(ORIGINAL, ORIGINAL, fixed, safety)
    assert (comparison.word, comparison.kept) == (word, kept)


def test_a_loss_that_is_not_a_number_equals_itself() -> None:
    lost = replace(ORIGINAL, losses=(float("nan"),) * 20)
    assert compare(lost, lost, lost, Safety.EXACT).word == "equal"
    assert compare(ORIGINAL, ORIGINAL, lost, Safety.CLOSE).kept is False


def test_a_script_that_does_not_repeat_itself_is_never_called_different() -> None:
    comparison = compare(ORIGINAL, nudged(1e-2, start=3), nudged(0.5), Safety.EXACT)
    assert (comparison.word, comparison.kept) == ("not-compared", None)
    assert comparison.doubt is not None
    assert comparison.doubt.name == "not-repeatable"
    assert "from step 4 on" in comparison.doubt.message


def test_rounding_of_the_script_itself_leaves_a_close_fix_comparable() -> None:
    again = nudged(1e-7)
    assert compare(ORIGINAL, again, ORIGINAL, Safety.CLOSE).kept is True
    assert compare(ORIGINAL, again, ORIGINAL, Safety.EXACT).kept is None


@pytest.mark.parametrize(
    ("low", "high", "noise", "verdict"),
    [
        (1.10, 1.30, NOISE, Verdict.FASTER),
        (0.99, 1.30, NOISE, Verdict.UNSURE),
        (1.01, 1.30, NOISE, Verdict.UNSURE),
        (1.005, 1.015, NOISE, Verdict.SAME),
        (0.98, 1.04, NOISE, Verdict.SAME),
        (1.10, 1.30, Interval(0.8, 1.25), Verdict.UNSURE),
        (0.70, 0.90, NOISE, Verdict.SLOWER),
        (0.70, 0.90, Interval(0.8, 1.25), Verdict.UNSURE),
    ],
)
def test_a_difference_counts_when_it_lies_outside_one_and_outside_the_noise(
    low: float, high: float, noise: Interval, verdict: Verdict
) -> None:
    assert judge_speed(Speedup((low + high) / 2, low, high), noise) is verdict


@pytest.mark.parametrize(
    ("low", "high", "noise", "work", "said"),
    [
        (0.965, 1.06, NOISE, None, "about 11 rounds would do (--rounds 11, or a longer --budget)"),
        (0.85, 1.2, BUSY, None, "; close other programs: as it is, it would take about "),
        (0.85, 1.2, BUSY, Speedup(1.02, 0.94, 1.1), "differ by 0.90x to 1.10x; about 10 rounds"),
        (1.01, 1.03, NOISE, None, "about 6 rounds would do"),
    ],
)
def test_what_is_undecided_says_how_many_rounds_would_do(
    low: float, high: float, noise: Interval, work: Speedup | None, said: str
) -> None:
    assert said in speed_doubt(Speedup((low + high) / 2, low, high), noise, 3, work).message


def test_what_is_faster_is_kept_and_what_is_slower_or_wrong_goes() -> None:
    assert {verdict: decide(verdict) for verdict in Verdict} == {
        Verdict.FASTER: "keep",
        Verdict.SAME: "none",
        Verdict.SLOWER: "revert",
        Verdict.DIFFERENT: "revert",
        Verdict.UNSURE: "none",
    }


def evidence(step: float, **fields: object) -> Evidence:
    timed = replace(ORIGINAL, durations=(step,) * 10, waited=step, host_memory=100)
    return Evidence(
        replace(ORIGINAL, **fields),  # type: ignore[arg-type]
        replace(ORIGINAL, syncs=(SyncSite("t.py", 3, ".item()", round(step * 10)),), sync_steps=10),
        rounds=[[timed, timed], [timed, timed]],
    )


def variant(*codes: str) -> Variant:
    return Variant("rule", codes, Safety.EXACT, {})


def test_a_fix_that_is_slower_on_a_cpu_and_meant_for_a_device_says_so() -> None:
    comparison = compare(ORIGINAL, ORIGINAL, ORIGINAL, Safety.EXACT)
    slow = assess(variant("TL201"), evidence(1.0), evidence(2.0), comparison, NOISE)
    assert slow.verdict is Verdict.SLOWER
    assert "slower on this device (cpu)" in slow.doubts[0].message
    other = assess(variant("TL101"), evidence(1.0), evidence(2.0), comparison, NOISE)
    assert other.doubts == ()


def test_an_outcome_has_syncs_waiting_and_memory_of_both_sides() -> None:
    comparison = compare(ORIGINAL, ORIGINAL, ORIGINAL, Safety.EXACT)
    outcome = assess(variant("TL201"), evidence(2.0), evidence(1.0), comparison, NOISE)
    assert outcome.verdict is Verdict.FASTER
    assert (outcome.syncs.before, outcome.syncs.after) == (2.0, 1.0)
    assert [site.line for site in outcome.sync_sites] == [3]
    assert outcome.wait_share.before == pytest.approx(0.1)
    assert outcome.host_memory.after == 100


def test_a_fix_with_which_the_script_fails_is_different_and_says_why() -> None:
    broken = Evidence(Trace("failed", Failure("crash", "NameError: x", "/a/t.py", 3)))
    outcome = assess(variant("TL201"), evidence(1.0), broken, None, NOISE)
    assert outcome.verdict is Verdict.DIFFERENT
    assert "fails with this fix at /a/t.py:3: NameError: x" in outcome.doubts[0].message


def test_numbers_that_cannot_be_compared_make_a_fast_fix_unsure() -> None:
    comparison = compare(ORIGINAL, nudged(0.1), ORIGINAL, Safety.EXACT)
    outcome = assess(variant("TL101"), evidence(2.0), evidence(1.0), comparison, NOISE)
    assert (outcome.verdict, outcome.decision) == (Verdict.UNSURE, "none")
    assert outcome.speedup is not None
    assert outcome.speedup.ratio == 2


@pytest.mark.parametrize(
    ("word", "kept", "losses", "thin"),
    [
        ("close", True, 4, True),
        ("close", True, 10, False),
        ("equal", True, 4, False),
        ("different", False, 4, False),
    ],
)
def test_numbers_that_are_close_after_a_few_losses_are_called_few(
    word: Word, kept: bool, losses: int, thin: bool
) -> None:
    comparison = Comparison(word, kept, losses, 2)
    outcome = assess(variant("TL307"), evidence(2.0), evidence(1.0), comparison, NOISE)
    assert [doubt.name for doubt in outcome.doubts] == ["few-losses"] * thin
