"""The arithmetic of step times, on made-up times whose answer is known."""

from __future__ import annotations

import random

import pytest

from torchlint.harness.judging.statistics import (
    Rounds,
    level,
    noise_band,
    share,
    speedup,
    step_time,
)
from torchlint.harness.judging.verdict import Verdict, judge_speed

NO_DIFFERENCE = (Verdict.SAME, Verdict.UNSURE)


def rounds(
    step: float, *, scatter: float, count: int = 3, steps: int = 40, seed: int = 0
) -> list[list[list[float]]]:
    """Runs with a pace of their own and scattering steps."""
    draw = random.Random(seed)

    def run() -> list[float]:
        pace = step * draw.gauss(1, scatter)
        return [pace * draw.gauss(1, scatter) for _ in range(steps)]

    return [[run(), run()] for _ in range(count)]


def test_the_ratio_is_the_originals_step_time_over_the_fixed_ones() -> None:
    gain = speedup(rounds(0.02, scatter=0.01), rounds(0.01, scatter=0.01, seed=1))
    assert gain.ratio == pytest.approx(2, rel=0.03)
    assert 1.9 < gain.low < gain.ratio < gain.high < 2.1


def test_a_step_time_is_the_median_over_runs_so_one_bad_run_does_not_count() -> None:
    calm = rounds(0.01, scatter=0.0)
    calm[0][0] = [0.5] * 40
    assert step_time(calm) == pytest.approx(0.01)


def test_the_interval_grows_with_the_scatter_between_runs() -> None:
    calm = speedup(rounds(1, scatter=0.01), rounds(1, scatter=0.01, seed=1))
    wild = speedup(rounds(1, scatter=0.2), rounds(1, scatter=0.2, seed=1))
    assert wild.high - wild.low > 3 * (calm.high - calm.low)


def test_two_pairs_of_runs_that_disagree_leave_it_open() -> None:
    before, busy = [[[0.01] * 40], [[0.01] * 40]], [[[0.01] * 40], [[0.2] * 40]]
    gain = speedup(before, busy)
    assert gain.low < 0.1
    assert gain.high >= 1


def test_two_rounds_of_a_script_against_itself_show_no_difference() -> None:
    for seed in range(120):
        found = rounds(1, scatter=0.03, count=4, seed=seed)
        before, after = found[::2], found[1::2]
        assert judge_speed(speedup(before, after), noise_band(before)) in NO_DIFFERENCE, seed


def drifting(count: int, seed: int, effect: float = 1.0) -> tuple[Rounds, Rounds]:
    """Rounds on a machine that is at another speed in each of them."""
    draw = random.Random(seed)
    sides: tuple[list[list[list[float]]], list[list[list[float]]]] = ([], [])
    for _ in range(count):
        pace = draw.uniform(1, 2)
        for side, factor in zip(sides, (1.0, 1 / effect), strict=True):
            side += rounds(pace * factor, scatter=0.02, count=1, seed=draw.randrange(1 << 30))
    return sides


def test_drift_from_round_to_round_is_taken_out_of_both_sides() -> None:
    before, after = drifting(6, 1, effect=1.2)
    flat = level(before, after)
    assert speedup(flat[0], flat[1]).ratio == pytest.approx(1.2, rel=0.03)
    drifted, steady = speedup(before, after), speedup(flat[0], flat[1])
    assert steady.high - steady.low < (drifted.high - drifted.low) / 2
    shown = step_time(flat[0]) / step_time(flat[1])
    assert shown == pytest.approx(steady.ratio)


def test_two_rounds_are_left_as_they_are() -> None:
    before, after = drifting(2, 1)
    assert level(before, after) == (before, after)


def test_a_script_against_itself_is_never_faster_where_the_machine_drifts() -> None:
    found = []
    for seed in range(60):
        sides = drifting(4, seed)
        flat = level(*sides)
        found.append(judge_speed(speedup(flat[0], flat[1]), noise_band(level(sides[0])[0])))
    assert set(found) <= set(NO_DIFFERENCE)
    assert found.count(Verdict.SAME) > 40


def test_an_evaluation_in_every_run_stays_in_the_ratio() -> None:
    before = [[[0.01] * 20 + [1.0] + [0.01] * 19 for _ in range(2)] for _ in range(3)]
    after = [[[0.01] * 20 + [0.5] + [0.01] * 19 for _ in range(2)] for _ in range(3)]
    gain = speedup(before, after)
    assert gain.low == pytest.approx(gain.high)
    assert gain.ratio == pytest.approx(1.39 / 0.89)


def test_work_that_only_one_side_does_once_stays_in_the_ratio() -> None:
    before = [[[0.01] * 40 for _ in range(2)] for _ in range(3)]
    after = [[[0.005] * 39 + [0.205] for _ in range(2)] for _ in range(3)]
    for gain in (speedup(before, after), speedup(after, before)):
        assert gain.low == pytest.approx(gain.high)
        assert gain.ratio == pytest.approx(1)


def test_the_noise_band_holds_one_and_is_never_narrower_than_one_percent() -> None:
    still = noise_band(rounds(1, scatter=0.0))
    assert (still.low, still.high) == (0.99, 1.01)
    wild = noise_band(rounds(1, scatter=0.1))
    assert wild.low < 0.97 < 1 < 1.03 < wild.high


def test_the_same_times_give_the_same_answer() -> None:
    before, after = rounds(2, scatter=0.1), rounds(1, scatter=0.1, seed=1)
    assert speedup(before, after) == speedup(before, after)
    assert noise_band(before) == noise_band(before)


def test_the_share_of_waiting_is_the_median_over_runs() -> None:
    times = [[[1.0, 1.0], [2.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]]
    assert share([1.0, 1.0, 1.0, 2.0], times) == 0.5
