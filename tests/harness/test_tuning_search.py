"""Which values are tried and which one is advised, on rates made up for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchlint.harness.pace import LoaderSeen, Pace
from torchlint.harness.tuning.report import Rate, TimedRun, noise_of, rate_of, steady_rate
from torchlint.harness.tuning.session import cheaper, doubling, knee_of, next_between, undecided


def exact(**rates: float) -> dict[int, Rate]:
    return {int(name[1:]): Rate(value, value, value) for name, value in rates.items()}


def tried(first: tuple[int, ...], most: int, rate: Callable[[int], float | None]) -> list[int]:
    best = [0.0]

    def better(value: int) -> bool | None:
        found = rate(value)
        if found is None:
            return None
        won = found > 1.05 * best[0]
        best[0] = max(best[0], found)
        return won

    return list(doubling(first, most, better))


def test_doubling_goes_on_while_it_pays() -> None:
    assert tried((2,), 64, lambda value: min(value, 16)) == [2, 4, 8, 16, 32, 64]
    assert tried((2,), 8, float) == [2, 4, 8]


def test_two_doublings_in_vain_end_it() -> None:
    assert tried((2,), 64, lambda value: 1.0) == [2, 4, 8]


def test_a_failure_ends_it() -> None:
    assert tried((32,), 1024, lambda value: None if value > 64 else value) == [32, 64, 128]


def test_the_knee_is_the_smallest_value_that_is_as_good_as_the_best() -> None:
    assert knee_of(exact(v0=40, v2=80, v4=97, v8=100), 0.05) == 4
    assert knee_of(exact(v0=98, v2=100), 0.05) == 0
    assert knee_of({}, 0.05) is None


def test_a_value_that_is_not_shown_to_be_worse_is_as_good() -> None:
    wide = {0: Rate(2451, 1616, 3448), 1: Rate(3971, 1963, 6738)}
    assert knee_of(wide, 0.05) == 0
    assert undecided(wide, 0.05) == [0, 1]
    assert knee_of({0: Rate(90, 88, 92), 2: Rate(100, 96, 104)}, 0.05) == 2


def test_what_is_in_use_gives_way_to_what_is_cheaper_and_as_fast_by_its_own_figure() -> None:
    wide = {0: Rate(23, 21, 25), 1: Rate(28, 24, 32), 2: Rate(27, 24, 30), 4: Rate(26, 24, 29)}
    assert knee_of(wide, 0.05) == 0
    assert cheaper(wide, 4, 0.05) == 1
    assert cheaper(wide, 1, 0.05) is None
    assert cheaper(exact(v0=50, v2=100, v4=101), 4, 0.05) == 2


def test_the_gap_below_the_knee_is_halved_until_it_is_small() -> None:
    assert next_between(exact(v0=40, v2=80, v4=90, v8=100), [0, 2, 4, 8], 0.05) == 6
    assert next_between(exact(v0=40, v4=90, v6=99, v8=100), [0, 4, 6, 8], 0.05) == 5
    assert next_between(exact(v0=40, v5=90, v6=99), [0, 5, 6], 0.05) is None
    assert next_between(exact(v0=40, v2=100), [0, 2], 0.05) == 1
    assert next_between(exact(v0=99, v2=100), [0, 2], 0.05) is None


def test_what_the_intervals_leave_open_is_run_again_with_the_best() -> None:
    assert undecided({0: Rate(96, 93, 99), 2: Rate(100, 98, 102)}, 0.05) == [0, 2]
    assert undecided({0: Rate(60, 58, 62), 2: Rate(100, 98, 102)}, 0.05) == []
    assert undecided({0: Rate(60, 58, 62), 2: Rate(96, 93, 99), 4: Rate(100, 98, 102)}, 0.05) == [
        2,
        4,
    ]


LOADER = LoaderSeen(
    place=None,
    maker="",
    dataset="Decoded",
    same_data=1,
    length=100,
    passes=10,
    num_workers=2,
    prefetch_factor=2,
    pin_memory=False,
    batch_size=10,
    persistent_workers=False,
    draws=40,
    steps=40,
)


def run(turn: int, step: float, opening: float = 0.0, steps: int = 40) -> TimedRun:
    pace = Pace(
        seconds=(step,) * steps,
        samples=(10,) * steps,
        aside=tuple(at % 10 == 0 for at in range(steps)),
        waits=(0.0,) * steps,
        opening=(opening,) * 4,
        cpu=1.0,
        memory=1,
        optimizer="SGD",
        learning_rate=0.1,
        loaders=(LOADER,),
    )
    return TimedRun(turn, pace, 3)


def test_the_start_of_workers_is_spread_over_the_pass() -> None:
    assert steady_rate(run(0, 0.01)) == pytest.approx(1000)
    assert steady_rate(run(0, 0.01, opening=0.1)) == pytest.approx(500)


def test_a_drift_that_the_original_shows_too_cancels() -> None:
    original = [run(0, 0.010), run(2, 0.012), run(4, 0.014)]
    half = [run(1, 0.0055), run(3, 0.0065)]
    rate = rate_of(half, original)
    assert rate.value == pytest.approx(2 * steady_rate(original[1]), rel=0.02)
    assert rate.low < rate.value < rate.high
    assert noise_of(original) < 0.05


def test_an_original_that_strays_widens_the_interval() -> None:
    calm = rate_of([run(1, 0.01)], [run(0, 0.01), run(2, 0.01), run(4, 0.01)])
    wild = rate_of([run(1, 0.01)], [run(0, 0.01), run(2, 0.02), run(4, 0.01)])
    assert wild.high - wild.low > 2 * (calm.high - calm.low)
