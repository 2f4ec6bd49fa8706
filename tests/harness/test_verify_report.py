"""What the person and the program read of a verification."""

from __future__ import annotations

import json
import os
from dataclasses import replace

from torchlint.finding import Safety
from torchlint.harness.judging.doubt import Doubt
from torchlint.harness.judging.promise import Comparison
from torchlint.harness.judging.statistics import Interval, Speedup
from torchlint.harness.judging.verdict import Change, Curves, Outcome, Report, Verdict
from torchlint.harness.plan import Variant
from torchlint.harness.trace import Failure, SyncSite
from torchlint.report.paint import Paint
from torchlint.report.verification import failure_line, verification_json, verification_text

FASTER = Outcome(
    Variant("rule", ("TL101",), Safety.EXACT, {"/p/train.py": "a"}),
    Verdict.FASTER,
    Comparison("equal", True, 60, 8),
    Speedup(1.8, 1.7, 1.9),
    step_time=Change(0.018, 0.01),
    syncs=Change(2.0, 0.0),
    sync_sites=(SyncSite("train.py", 12, ".item()", 20),),
    wait_share=Change(0.9, 0.1),
    host_memory=Change(1 << 28, 1 << 29),
    before=Curves(sync_sites=(SyncSite("train.py", 12, ".item()", 20),), sync_steps=10),
)
WRONG = Outcome(
    Variant("rule", ("TL302",), Safety.EXACT, {"/p/train.py": "b"}),
    Verdict.DIFFERENT,
    Comparison("close", False, 60, 8, differs_at=3),
)
REPORT = Report(
    "train.py", ("--lr", "1"), "cpu", "2.13.0", 0, 50, 10, 3, Interval(0.98, 1.02), (FASTER, WRONG)
)


def test_json_has_the_fields_that_were_promised() -> None:
    document = json.loads(verification_json(REPORT))
    assert {key: document[key] for key in ("version", "script", "args", "noise", "steps")} == {
        "version": 1,
        "script": "train.py",
        "args": ["--lr", "1"],
        "noise": {"low": 0.98, "high": 1.02},
        "steps": 50,
    }
    assert set(document) == {
        *("version", "script", "args", "device", "torch", "python", "seed", "steps", "warmup"),
        *("rounds", "noise", "timed", "diverted", "changed", "launcher", "variants"),
    }
    assert document["variants"][0] == {
        "kind": "rule",
        "codes": ["TL101"],
        "files": [os.path.relpath("/p/train.py")],
        "safety": "exact",
        "verdict": "FASTER",
        "decision": "keep",
        "speedup": {"ratio": 1.8, "low": 1.7, "high": 1.9},
        "cpu_time": None,
        "numbers": "equal",
        "compared": {
            "method": "as-is",
            "why": "",
            "losses": 60,
            "parameters": 8,
            "differs_at_step": None,
        },
        "because": [],
        "syncs_per_step": {"before": 2.0, "after": 0.0},
        "sync_lines": {
            "before": [{"file": "train.py", "line": 12, "call": ".item()", "per_step": 2.0}],
            "after": [],
        },
        "wait_share": {"before": 0.9, "after": 0.1},
        "peak_memory": {
            "host": {"before": 1 << 28, "after": 1 << 29},
            "device": {"before": None, "after": None},
        },
        "warnings": [],
        "rank_times": [],
        "doubts": [],
    }
    assert document["variants"][1]["speedup"] is None
    assert document["variants"][1]["decision"] == "revert"


def test_text_says_the_verdict_first_and_what_it_rests_on() -> None:
    text = verification_text(REPORT, Paint())
    assert "TL101  keep\n" in text
    assert "1.80x (1.70x to 1.90x): 18 ms -> 10 ms a step" in text
    assert "equal bit for bit (60 losses, 8 parameters)" in text
    assert "no longer waits at train.py:12: .item()" in text
    assert "256 -> 512 MiB" in text
    assert "TL302  revert (numbers off)\n" in text
    assert "not bit for bit equal, as its class `exact` promises, from step 4 on" in text


def test_no_difference_and_no_comparison_are_answers() -> None:
    same = replace(FASTER, verdict=Verdict.SAME)
    comparison = Comparison("not-compared", None, 60, 8, doubt=Doubt.not_repeatable(2))
    unsure = replace(WRONG, verdict=Verdict.UNSURE, comparison=comparison)
    text = verification_text(replace(REPORT, outcomes=(same, unsure)), Paint())
    assert "TL101  no measurable difference\n" in text
    assert "TL302  cannot compare\n" in text


def test_one_rule_alone_is_not_told_twice() -> None:
    whole = replace(FASTER, variant=replace(FASTER.variant, kind="all"))
    text = verification_text(replace(REPORT, outcomes=(FASTER, whole)), Paint())
    assert text.count("keep") == 1


def test_a_script_that_fails_is_one_line_with_its_place() -> None:
    line = failure_line("t.py", Failure("crash", "ValueError: no", "data.py", 3))
    assert line == "data.py:3: the original script fails: ValueError: no"
    assert failure_line("t.py", Failure("idle", "no step")).startswith("t.py: ")
