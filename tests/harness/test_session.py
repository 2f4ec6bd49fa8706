"""Whole verifications of real scripts, with fixes made by hand."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from harness.scripts import PLAIN, write

from torchlint.finding import Safety
from torchlint.harness.judging.verdict import Verdict
from torchlint.harness.plan import Plan, Variant
from torchlint.harness.session import InterruptedSession, ScriptError, Session
from torchlint.harness.stage import Schedule, Stage
from torchlint.report.verification import verification_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('hello')\n", "never imports torch"),
        ("import os\nos.system('true # torchrun train.py')\n", "the script starts other processes"),
        ("raise ValueError('wrong\\nway')\n", "ValueError: wrong way"),
    ],
)
def test_a_script_that_cannot_be_measured_says_why(tmp_path: Path, text: str, message: str) -> None:
    with Session(Plan(write(tmp_path, text))) as session, pytest.raises(ScriptError) as error:
        session.survey()
    assert message in error.value.failure.message


def test_a_script_that_trains_in_processes_of_its_own_and_takes_long_says_so(
    tmp_path: Path,
) -> None:
    script = write(
        tmp_path,
        """
        import time
        import torch.multiprocessing as processes
        trainer = processes.get_context("fork").Process(target=time.sleep, args=(1000,))
        trainer.start()
        trainer.join()
        """,
    )
    with Session(Plan(script, timeout=15)) as session, pytest.raises(ScriptError) as error:
        session.survey()
    assert error.value.failure.kind == "timeout"
    assert "after 15 s (--timeout); it starts other processes" in error.value.failure.message


def test_a_script_that_ends_early_is_compared_and_named(tmp_path: Path) -> None:
    script = write(tmp_path, PLAIN.replace("range(1000)", "range(5)"))
    noop = Variant("all", ("TL901",), Safety.EXACT, {str(script): script.read_text() + "\n"})
    with Session(Plan(script)) as session:
        report = session.measure([noop])
    (outcome,) = report.outcomes
    assert outcome.verdict is not Verdict.DIFFERENT
    assert outcome.comparison is not None
    assert outcome.comparison.word == "equal"
    assert outcome.comparison.losses == 5
    assert report.doubts[0].name == "whole-runs"


def test_equal_losses_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    text = PLAIN.replace("range(1000)", "range(5)").replace("lr=0.1", "lr=1e30")
    script = write(tmp_path, text)
    noop = Variant("all", ("TL901",), Safety.EXACT, {str(script): script.read_text() + "\n"})
    with Session(Plan(script)) as session:
        report = session.measure([noop])
    (lost,) = (doubt for doubt in report.doubts if doubt.name == "not-a-number")
    assert lost.message.startswith("the original's loss is inf in step 2, ")


def test_a_script_without_steps_is_timed_whole_and_its_output_compared(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import time
        import torch
        time.sleep(1.5)
        print(float(torch.ones(4).sum()))
        """,
    )
    text = script.read_text()
    quicker = Variant("rule", ("TL901",), Safety.EXACT, {str(script): text.replace("1.5", "0.0")})
    wrong = Variant("rule", ("TL902",), Safety.EXACT, {str(script): text.replace("ones", "zeros")})
    stages: list[Stage] = []
    with Session(Plan(script, rounds=2), stages.append) as session:
        report = session.measure([quicker, wrong])
    first, second = report.outcomes
    assert report.whole
    assert report.doubts[0].name == "whole-runs"
    assert first.verdict is Verdict.FASTER
    assert first.comparison is not None
    assert (first.comparison.method, first.comparison.word) == ("output", "equal")
    assert second.verdict is Verdict.DIFFERENT
    assert (stages[0].what, stages[0].left) == ("the original: its numbers", None)
    assert (stages[-1].what, stages[-1].done + 1) == ("the original: its step time", 12)
    assert stages[-1].total == 12
    assert stages[-1].left is not None


def test_a_quick_answer_about_a_slow_script_takes_few_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write(tmp_path, PLAIN.replace("optimizer.step()", "optimizer.step(); time.sleep(0.1)"))
    text = "import time\n" + script.read_text()
    script.write_text(text)
    variant = Variant("all", ("TL901",), Safety.EXACT, {str(script): text + "# the same\n"})
    monkeypatch.setattr("torchlint.harness.runs.runner._PATIENCE", 0.5)
    for user in ("session", "window"):
        monkeypatch.setattr(f"torchlint.harness.{user}.QUICK_RUNS", 1000)
    plan = Plan(script, steps=20, warmup=5, rounds=2, device="cpu", budget=105.0)
    with Session(plan) as session:
        report = session.measure([variant])
    (outcome,) = report.outcomes
    assert outcome.comparison is not None
    assert outcome.comparison.word == "equal"
    assert outcome.comparison.losses < 25
    assert outcome.speedup is not None
    assert 3 <= report.steps < 20
    assert report.rounds == 1
    assert [len(runs) for runs in outcome.before.times] == [1, 1]
    assert [len(runs) for runs in outcome.after.times] == [1, 1]


@pytest.mark.parametrize(("pairs", "doubt"), [(0, "not-timed"), (1, "timed-once")])
def test_a_quick_answer_leaves_out_what_would_come_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pairs: int, doubt: str
) -> None:
    script = write(tmp_path, PLAIN)
    asked = iter([True] * pairs)

    def fits(schedule: Schedule, **runs: int) -> bool:
        return runs == {"numbers": 1} or (runs == {"time": 2} and next(asked, False))

    monkeypatch.setattr(Schedule, "fits", fits)
    variant = Variant("all", ("TL901",), Safety.EXACT, {str(script): script.read_text() + "# a\n"})
    with Session(Plan(script, rounds=2, device="cpu", budget=105.0)) as session:
        report = session.measure([variant])
    (outcome,) = report.outcomes
    assert outcome.comparison is not None
    assert outcome.comparison.word == "equal"
    assert outcome.verdict is Verdict.UNSURE
    assert [doubt.name for doubt in outcome.doubts] == [doubt]
    assert (outcome.speedup is not None, report.noise) == (bool(pairs), None)
    assert [len(runs) for runs in outcome.after.times] == [1] * pairs
    assert outcome.syncs.after is None


def test_numbers_that_are_others_stay_open_where_a_quick_answer_has_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write(tmp_path, PLAIN)
    monkeypatch.setattr(Schedule, "fits", lambda schedule, **runs: runs == {"numbers": 1})
    text = script.read_text().replace("lr=0.1", "lr=0.2")
    assert text != script.read_text()
    variant = Variant("all", ("TL901",), Safety.EXACT, {str(script): text})
    with Session(Plan(script, rounds=2, device="cpu", budget=105.0)) as session:
        report = session.measure([variant])
    (outcome,) = report.outcomes
    assert outcome.verdict is Verdict.UNSURE
    assert "numbers-open" in [doubt.name for doubt in outcome.doubts]


def test_a_script_that_is_too_slow_for_a_quick_answer_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write(tmp_path, "import time, torch\ntime.sleep(60)\n")
    with Session(Plan(script, budget=3.0)) as session, pytest.raises(ScriptError) as error:
        session.measure([])
    assert "too long to compare two within 3 s" in error.value.failure.message


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac may have the device")
def test_a_device_that_is_not_there_is_told_before_any_run(tmp_path: Path) -> None:
    seen: list[Stage] = []
    plan = Plan(write(tmp_path, PLAIN), device="mps")
    with Session(plan, seen.append) as session, pytest.raises(ScriptError) as error:
        session.survey()
    assert error.value.failure.message == "this torch sees no mps device"
    assert seen == []


def test_what_is_known_when_a_session_is_interrupted_is_reported(tmp_path: Path) -> None:
    script = write(tmp_path, PLAIN)
    text = script.read_text(encoding="utf-8")
    variants = [
        Variant("rule", (code,), Safety.EXACT, {str(script): text.replace("lr=0.1", f"lr={rate}")})
        for code, rate in (("TL801", "0.10"), ("TL901", "0.2"), ("TL902", "1e-1"))
    ]
    seen: list[str] = []

    def notify(stage: Stage) -> None:
        seen.append(stage.what)
        if stage.what == "TL902: its numbers":
            raise KeyboardInterrupt(signal.SIGTERM)

    plan = Plan(script, steps=8, warmup=2, rounds=2)
    with pytest.raises(InterruptedSession) as stop, Session(plan, notify) as session:
        session.measure(variants)
    assert stop.value.signal == signal.SIGTERM
    report = stop.value.report
    assert report.partial
    assert report.doubts[-1].name == "interrupted"
    assert "not run at all: TL902" in report.doubts[-1].message
    found = {outcome.variant.name: outcome for outcome in report.outcomes}
    assert found["TL801"].comparison is not None
    assert found["TL801"].comparison.word == "equal"
    assert (found["TL801"].verdict, found["TL801"].doubts) == (Verdict.UNSURE, ())
    assert found["TL901"].verdict is Verdict.DIFFERENT
    assert json.loads(verification_json(report))["partial"]
