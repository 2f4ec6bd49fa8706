"""What the person and the program read of a verification."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from torchlint.finding import Safety
from torchlint.harness.judging.assessment import Evidence, assess
from torchlint.harness.judging.doubt import Doubt
from torchlint.harness.judging.promise import Comparison
from torchlint.harness.judging.statistics import Interval, Speedup
from torchlint.harness.judging.verdict import (
    Change,
    Curves,
    Outcome,
    Report,
    Revision,
    Verdict,
)
from torchlint.harness.plan import Variant
from torchlint.harness.trace import Failure, SyncSite, Trace
from torchlint.report.conclusion import conclusion
from torchlint.report.paint import Paint
from torchlint.report.verification import failure_line, verification_json, verification_text
from torchlint.report.verificationmarkdown import verification_markdown

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
    *("train.py", ("--lr", "1"), "cpu", "2.13.0", 0, 50, 10, 3),
    Interval(0.98, 1.02),
    (FASTER, WRONG),
    apply_command="torchlint verify --apply train.py -- --lr 1",
    longer_command="torchlint verify --budget 600 train.py -- --lr 1",
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
        *("rounds", "noise", "timed", "diverted", "changed", "launcher", "variants", "epoch"),
        "bound",
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
            "reserved": {"before": None, "after": None},
        },
        "energy_per_step": {"before": None, "after": None},
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
    alone = Failure("crash", "ImportError: attempted relative import with no known parent package")
    assert failure_line("net/train.py", alone).endswith(
        "package; start it as a module, with `-m net.train` in place of net/train.py"
    )
    assert failure_line("train.py", alone).endswith("no known parent package")


def test_what_depends_on_no_machine_comes_first_and_small_differences_are_left_out() -> None:
    outcome = replace(FASTER, wait_share=Change(0.2, 0.21), host_memory=Change(1 << 28, 1 << 28))
    _, shown = verification_text(replace(REPORT, outcomes=(outcome,)), Paint()).split("TL101  keep")
    labels = [line.strip().partition("  ")[0] for line in shown.split("\n\n")[0].splitlines()[1:]]
    assert labels == [
        "numbers",
        "syncs per step",
        "speed",
        "no longer waits at train.py:12: .item()",
    ]


WORK = replace(FASTER, verdict=Verdict.FASTER, work=Speedup(2.6, 2.4, 2.8))
ALL = replace(FASTER, variant=replace(FASTER.variant, kind="all", codes=("TL101", "TL102")))
SLOWER = replace(FASTER, verdict=Verdict.SLOWER)
EVEN = replace(FASTER, variant=replace(FASTER.variant, codes=("TL102",)), verdict=Verdict.SAME)
APPLY = "`torchlint verify --apply train.py -- --lr 1` writes"


@pytest.mark.parametrize(
    ("outcomes", "last"),
    [
        (
            (FASTER,),
            f"1 of 1 fixes kept, 1.8x as fast, numbers equal bit for bit: {APPLY} it.",
        ),
        (
            (FASTER, EVEN, ALL),
            f"1 of 2 fixes kept (TL101), 1.8x as fast, numbers equal bit for bit: {APPLY} it.",
        ),
        (
            (ALL,),
            f"2 of 2 fixes kept, 1.8x as fast together, numbers equal bit for bit: {APPLY} them.",
        ),
        (
            (WORK, WRONG),
            "1 of 2 fixes kept (TL101), 2.6x less processor time, numbers equal bit for bit: "
            f"{APPLY} it.",
        ),
        ((EVEN,), "The fix was not kept: there is nothing to write."),
        (
            (replace(EVEN, verdict=Verdict.UNSURE), WRONG),
            "None of 2 fixes was kept, and not all was decided: "
            "`torchlint verify --budget 600 train.py -- --lr 1` measures longer.",
        ),
        (
            (replace(FASTER, verdict=Verdict.UNSURE), replace(EVEN, verdict=Verdict.UNSURE), ALL),
            f"2 of 2 fixes kept, 1.8x as fast together, numbers equal bit for bit: {APPLY} them.",
        ),
        (
            (SLOWER, replace(EVEN, verdict=Verdict.UNSURE), ALL),
            "None of 2 fixes was kept, and not all was decided: "
            "`torchlint verify --budget 600 train.py -- --lr 1` measures longer.",
        ),
        ((), ""),
    ],
)
def test_the_last_line_says_what_was_gained_and_what_to_type(
    outcomes: tuple[Outcome, ...], last: str
) -> None:
    report = replace(REPORT, outcomes=outcomes)
    assert conclusion(report) == last
    assert not outcomes or verification_text(report, Paint()).endswith(f"\n\n{last}\n")
    page = verification_text(report, Paint(), "report.html")
    assert page.splitlines()[-2 if last else -1] == "As a page: report.html"


def test_a_doubt_that_several_fixes_share_is_told_once() -> None:
    noisy = Doubt.noisy_machine(0.8, 1.3, 90)
    outcomes = tuple(replace(each, doubts=(noisy,)) for each in (FASTER, EVEN, ALL))
    text = verification_text(replace(REPORT, outcomes=outcomes), Paint())
    assert text.count("  noisy-machine: too noisy to decide") == 1


def test_a_working_tree_is_nothing_to_write() -> None:
    assert conclusion(replace(REPORT, against=Revision("main", "0123"))) == ""


@pytest.mark.parametrize(("device", "count"), [("cpu", 1), ("cuda", 0)])
def test_waits_that_a_cpu_does_not_show_are_explained(device: str, count: int) -> None:
    numbers = Trace("full", device=device)
    waits, none = (Trace("full", syncs=syncs, sync_steps=10) for syncs in (FASTER.sync_sites, ()))
    before, after = (Evidence(numbers, syncs) for syncs in (waits, none))
    found = assess(FASTER.variant, before, after, Comparison("equal", True, 6, 2), None)
    assert [doubt.name for doubt in found.doubts].count("saves-waits") == count


def test_a_table_shows_the_processor_time_that_decided() -> None:
    assert "processor time" not in verification_markdown(REPORT)
    table = verification_markdown(replace(REPORT, outcomes=(WORK, WRONG))).splitlines()
    assert table[2] == (
        "| what | verdict | speed | processor time | numbers | syncs per step | waiting for data |"
    )
    assert "| 2.60x (2.40x to 2.80x) in each step, which decides: " in table[4]
