"""Findings in the order of what a verification measured."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from cli_shell import Shell

from torchlint.config import FORMATS

SCRIPT = """\
import torch

slow()
for batch in loader:
    risky(batch)
slow()
heavy()
"""


def variant(code: str, verdict: str = "FASTER", ratio: float | None = 1.5, **more: Any) -> Any:
    """Return a variant as `verify --json` writes it."""
    speedup = None if ratio is None else {"ratio": ratio, "low": ratio - 0.1, "high": ratio + 0.1}
    return {
        "kind": "rule",
        "codes": [code],
        "files": ["a.py"],
        "safety": "unsafe",
        "verdict": verdict,
        "speedup": speedup,
        **more,
    }


def document(*variants: Any, **more: Any) -> dict[str, Any]:
    """Return a report as `verify --json` writes it."""
    return {
        "version": 1,
        "script": "a.py",
        "device": "cuda",
        "torch": "2.13.0",
        "variants": list(variants),
        **more,
    }


def measured(
    shell: Shell, report: Any, *arguments: str, text: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `check` on the script with a report."""
    shell.write("a.py", SCRIPT)
    shell.write("report.json", report if isinstance(report, bytes) else json.dumps(report))
    arguments = arguments or ("--output-format", "concise")
    paths = () if "-" in arguments else ("a.py",)
    return shell.check(*paths, "--measured", "report.json", *arguments, text=text)


def heads(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return place and code of the findings of a concise report."""
    lines = done.stdout.splitlines()
    return [line.split(" [")[0] for line in lines if line.startswith(("a.py", "-"))]


def test_what_costs_most_comes_first_and_what_was_not_measured_last(quick: Shell) -> None:
    done = measured(quick, document(variant("XY201", ratio=1.2), variant("XY301", ratio=3)))
    assert done.returncode == 1
    assert done.stdout == (
        "a.py:5:5: XY301 [risky-call] medium: `risky` could be faster (measured 3.00x on cuda)"
        " (unsafe fix)\n"
        "a.py:3:1: XY201 [slow-call] high: `slow` takes its time: call `fast`"
        " (measured 1.20x on cuda, all 2 together) (exact fix)\n"
        "a.py:6:1: XY201 [slow-call] high: `slow` takes its time: call `fast`"
        " (measured 1.20x on cuda, all 2 together) (exact fix)\n"
        "a.py:7:1: XY401 [heavy-call] low: `heavy` is heavy: think of another way\n"
        "Found 4 findings: 2 fixable with `torchlint fix --apply`, 1 more with `--unsafe-fixes`.\n"
        "Most worth: XY301 (3.0x measured here), XY201 (1.2x measured here), XY401."
        " `torchlint verify a.py` proves it.\n"
    )


def test_findings_under_the_least_cost_are_hidden_and_counted(quick: Shell) -> None:
    report = document(variant("XY201", "SAME", 1.04), variant("XY301", ratio=1.02))
    done = measured(quick, report, "--min-cost", "1", "--output-format", "concise")
    assert heads(done) == ["a.py:5:5: XY301", "a.py:7:1: XY401"]
    assert "\n2 findings hidden: measured under 1 % of a step.\n" in done.stdout
    done = measured(
        quick,
        report,
        *("--min-cost", "5", "--select", "XY201", "--ignore", "XY301,XY401"),
        *("--output-format", "concise"),
    )
    assert done.returncode == 0
    assert done.stdout == "2 findings hidden: measured under 5 % of a step.\n"


def test_a_cost_that_could_not_be_told_is_not_hidden(quick: Shell) -> None:
    report = document(
        variant("XY201", "UNSURE", 1.0), variant("XY301", "DIFFERENT", None), variant("XY401")
    )
    done = measured(quick, report, "--min-cost", "99", "--output-format", "concise")
    assert heads(done) == [
        "a.py:3:1: XY201",
        "a.py:5:5: XY301",
        "a.py:6:1: XY201",
        "a.py:7:1: XY401",
    ]
    assert "measured 1.00x on cuda, all 2 together, too noisy to tell" in done.stdout
    assert done.stdout.count("measured") == 2


def test_slower_fixes_come_after_those_without_a_difference(quick: Shell) -> None:
    report = document(variant("XY301", "SLOWER", 0.5), variant("XY201", "SAME", 1.0))
    assert heads(measured(quick, report)) == [
        *("a.py:3:1: XY201", "a.py:6:1: XY201", "a.py:5:5: XY301", "a.py:7:1: XY401")
    ]


def test_a_fix_less_safe_than_those_that_were_made_was_not_measured(quick: Shell) -> None:
    done = measured(quick, document(variant("XY301", safety="exact"), variant("XY401")))
    assert "measured" not in done.stdout


def test_only_files_whose_fixes_were_measured_are_ranked(quick: Shell) -> None:
    quick.write("b.py", "risky()\n")
    report = document(variant("XY301"), variant("XY201", "SAME", 1.0, files=["b.py", "a.py"]))
    done = measured(quick, report, "b.py", "--output-format", "concise")
    assert (
        "b.py:1:1: XY301 [risky-call] medium: `risky` could be faster (unsafe fix)" in done.stdout
    )
    report["variants"][0]["files"] = ["a.py", "b.py"]
    done = measured(quick, report, "b.py", "--output-format", "concise")
    assert (
        "b.py:1:1: XY301 [risky-call] medium: `risky` could be faster (measured 1.50x"
        in done.stdout
    )


def test_a_report_without_files_is_of_its_script_and_may_lie_elsewhere(quick: Shell) -> None:
    plain = variant("XY301")
    del plain["files"]
    quick.write("runs/a.py", SCRIPT)
    quick.write("runs/report.json", json.dumps(document(plain)))
    done = quick.check(
        *("runs/a.py", "--measured", "runs/report.json", "--output-format", "concise")
    )
    assert done.stdout.startswith("runs/a.py:5:5: XY301")


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_the_same_findings_in_the_same_order(quick: Shell, form: str) -> None:
    report = document(variant("XY201", ratio=1.2), variant("XY301", ratio=3))
    done = measured(quick, report, "--output-format", form)
    places = [done.stdout.index(code) for code in ("XY301", "XY201", "XY401")]
    if form == "sarif":
        results = json.loads(done.stdout)["runs"][0]["results"]
        assert [result["ruleId"] for result in results] == ["XY301", "XY201", "XY201", "XY401"]
        assert [round(result.get("rank", -1)) for result in results] == [67, 17, 17, -1]
    else:
        assert places == sorted(places)
    assert done.stdout.count("XY201") == measured(
        quick, document(), "--output-format", form
    ).stdout.count("XY201")


def test_json_has_what_was_measured_beside_its_evidence(quick: Shell) -> None:
    done = measured(quick, document(variant("XY301", ratio=2)), "--output-format", "json")
    first, second, *_ = json.loads(done.stdout)
    assert first["measured"] == {
        "verdict": "FASTER",
        "device": "cuda",
        "speedup": {"ratio": 2.0, "low": 1.9, "high": 2.1},
        "share": 0.5,
        "findings": 1,
    }
    assert (first["message"], first["evidence"]) == ("`risky` could be faster", None)
    assert "measured" not in second


def test_standard_input_can_stand_for_the_script(quick: Shell) -> None:
    done = measured(
        quick,
        document(variant("XY301")),
        *("-", "--stdin-filename", "a.py", "--output-format", "concise"),
        text=SCRIPT,
    )
    assert heads(done)[0] == "a.py:5:5: XY301"


FASTER = variant("XY301")


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (b"", "report.json is not JSON, and so not a report of `verify --json`"),
        (b"\xff\xfe{}", "report.json is not JSON"),
        (b"[" * 100_000, "report.json is not JSON"),
        ([], "`version` is not a whole number"),
        ({"version": True}, "`version` is not a whole number"),
        (document(version=2), "report.json is of version 2, and this torchlint reads version 1"),
        (document(script=3), "`script` is not a text"),
        (
            document(script="b.py"),
            "report.json was measured on b.py, which is not among the checked files",
        ),
        (document(script="\0"), "names no file"),
        (document(variants={}), "`variants` is not a list"),
        (document(3), "`variants[0].codes` is not a list"),
        (document(FASTER, variant("X", codes=[1])), "`variants[1].codes` is not a list of texts"),
        (document(variant("X", files="a.py")), "`variants[0].files` is not a list"),
        (document(variant("X", safety="good")), "`variants[0].safety` is none of show, unsafe,"),
        (document(variant("X", "BEST")), "`variants[0].verdict` is none of FASTER, SAME,"),
        (document(variant("X", speedup=[1])), "`variants[0].speedup` is not an object"),
        (document(variant("X", ratio=-1)), "`variants[0].speedup.ratio` is not a number above 0"),
        (document(variant("X", ratio=float("nan"))), "`variants[0].speedup.ratio` is not a numb"),
        (document(variant("X", speedup={"ratio": 10**400})), "ratio` is not a number above 0"),
        (document(variant("X", speedup={"ratio": "2"})), "ratio` is not a number above 0"),
        (document(script="\x1b[31m"), "report.json was measured on \\x1b[31m, which is not"),
    ],
)
def test_a_wrong_report_is_one_line_and_exit_2(quick: Shell, report: Any, line: str) -> None:
    done = measured(quick, report)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_report_that_is_not_there_is_exit_2(shell: Shell) -> None:
    shell.write("a.py", SCRIPT)
    done = shell.check("a.py", "--measured", "gone.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "gone.json" in done.stderr


def test_the_least_cost_needs_a_report(shell: Shell) -> None:
    shell.write("a.py", SCRIPT)
    done = shell.check("a.py", "--min-cost", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "`--min-cost` needs `--measured FILE`" in done.stderr
