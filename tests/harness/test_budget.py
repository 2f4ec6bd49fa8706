"""Rounds within a budget, and what a verification tells while it goes on."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from harness.scripts import PLAIN, write

from torchlint.cli.progressbar import News
from torchlint.finding import Safety
from torchlint.harness.judging.verdict import Verdict
from torchlint.harness.plan import Plan, Variant
from torchlint.harness.session import Session
from torchlint.harness.stage import Schedule


def variants(script: Path) -> list[Variant]:
    text = script.read_text(encoding="utf-8")
    same, other = text + "# the same\n", text.replace("lr=0.1", "lr=0.2")
    return [
        Variant("rule", ("TL901",), Safety.EXACT, {str(script): same}),
        Variant("rule", ("TL902",), Safety.EXACT, {str(script): other}),
        Variant("all", ("TL901",), Safety.EXACT, {str(script): same}),
    ]


@pytest.mark.parametrize(("most", "rounds"), [(4, 4), (0, 2)])
def test_a_budget_goes_on_while_the_original_is_noisy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, rounds: int
) -> None:
    monkeypatch.setattr("torchlint.harness.session.is_settled", lambda *rest: False)
    script = write(tmp_path, PLAIN)
    said: list[str] = []
    plan = Plan(*(script, (), 8, 2, 2), device="cpu", budget=600.0, timeout=60.0, most_rounds=most)
    with Session(plan, listener=News(said.append)) as session:
        report = session.measure(variants(script))
    whole, alone, other = report.outcomes
    assert report.rounds == rounds
    assert [len(outcome.after.times) for outcome in report.outcomes] == [rounds, rounds, 0]
    assert (whole.variant.kind, alone.variant.kind) == ("all", "rule")
    assert other.verdict is Verdict.DIFFERENT
    estimate, *told = [line for line in said if not line.startswith("the first run goes on")]
    assert estimate.startswith("2 variants to compare, about ")
    assert "Ctrl-C ends with what is known by then" in estimate
    assert told[0].startswith("all fixes (TL901): equal bit for bit (10 losses")
    assert told[1].startswith("round 1 of 2: all fixes ")
    assert told[2].startswith("round 2 of 2: all fixes ")
    assert told[3].startswith("TL902: not bit for bit equal, as its class `exact` promises")
    more = [line.partition(": all fixes")[0] for line in told[4:]]
    assert more == [f"round {number} of {most}" for number in range(3, rounds + 1)]


def test_without_a_budget_rounds_go_on_as_well_up_to_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchlint.harness.session.is_settled", lambda *rest: False)
    script = write(tmp_path, PLAIN)
    plan = Plan(*(script, (), 8, 2, 2), device="cpu", timeout=60.0, most_rounds=3)
    with Session(plan) as session:
        report = session.measure(variants(script)[:1])
    (outcome,) = report.outcomes
    assert (report.rounds, len(outcome.after.times)) == (3, 3)


def test_a_first_run_that_takes_long_is_told_before_there_is_an_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchlint.harness.session._DELAYED", 0.1)
    said: list[str] = []
    plan = Plan(write(tmp_path, PLAIN), (), 8, 2, 2, device="cpu", timeout=60.0)
    with Session(plan, listener=News(said.append)) as session:
        session.survey()
    assert said == [
        "the first run goes on after 0 s: each variant needs about 11 runs, so expect about 1 s "
        "or more for it; an estimate follows"
    ]


def test_what_is_left_ends_with_the_budget() -> None:
    schedule = Schedule(None, 30.0)
    schedule.assume("time", 2.0)
    with schedule.run("syncs", "the original"):
        pass
    schedule.expect(time=10)
    assert schedule.rest == pytest.approx(20.0)
    schedule.expect(time=100)
    assert schedule.rest == pytest.approx(30.0, abs=1)


def test_a_long_verification_without_a_budget_names_the_quick_one() -> None:
    said: list[str] = []
    News(said.append).planned(8, 92, 1440.0, math.inf)
    News(said.append).planned(1, 9, 1440.0, math.inf)
    assert len(said) == 3
    assert said[1] == "--quick measures all fixes together first, within two minutes"


def test_an_estimate_beyond_the_budget_says_which_has_time_for_all() -> None:
    said: list[str] = []
    News(said.append).planned(12, 99, 540.0, 95.0)
    News(said.append).planned(2, 20, 40.0, 95.0)
    assert said == [
        "12 variants to compare, about 99 runs, about 9 min "
        "(Ctrl-C ends with what is known by then)",
        "the budget ends in about 2 min: all fixes together come first, then each alone while time "
        "allows; --budget 660 has time for all",
        "2 variants to compare, about 20 runs, about 40 s (Ctrl-C ends with what is known by then)",
    ]
