from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from report_samples import PAGE, SCRIPT, report_of, sample_findings
from syrupy.assertion import SnapshotAssertion

from torchlint.edit import apply_edits
from torchlint.report.entry import Report
from torchlint.report.formats import render
from torchlint.report.paint import Paint
from torchlint.source import Position, Source

PLAIN = Paint()

Place = tuple[str, str, int, int, str]


def sarif_run(report: Report) -> dict[str, Any]:
    """Give the one run of a SARIF log."""
    log = json.loads(render(report, PLAIN, "sarif"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def from_json(report: Report) -> list[Place]:
    found = json.loads(render(report, PLAIN, "json"))
    lines = render(report, PLAIN, "json-lines").splitlines()
    assert [json.loads(line) for line in lines] == found
    return [
        (
            str(Path(each["filename"]).relative_to(Path.cwd())),
            each["code"],
            each["location"]["row"],
            each["location"]["column"],
            each["message"],
        )
        for each in found
    ]


def from_sarif(report: Report) -> list[Place]:
    places = []
    for result in sarif_run(report)["results"]:
        where = result["locations"][0]["physicalLocation"]
        region = where["region"]
        places.append(
            (
                unquote(where["artifactLocation"]["uri"]),
                result["ruleId"],
                region["startLine"],
                region["startColumn"],
                result["message"]["text"],
            )
        )
    return places


def from_lines(report: Report, form: str) -> list[Place]:
    pattern = re.compile(
        r"^(?:::error .*?::)?(.+?):(\d+):(\d+): ([A-Z]+\d+) \[[a-z-]+\] (.*?)(?: \(\w+ fix\))?$",
        re.MULTILINE,
    )
    found = pattern.findall(render(report, PLAIN, form))
    return [(path, code, int(row), int(column), text) for path, row, column, code, text in found]


def from_grouped(report: Report) -> list[Place]:
    text = render(report, PLAIN, "grouped")
    path = text.splitlines()[0].removesuffix(":")
    pattern = re.compile(
        r"^  (\d+):(\d+) +([A-Z]+\d+) \[[a-z-]+\] (.*?)(?: \(\w+ fix\))?$", re.MULTILINE
    )
    return [
        (path, code, int(row), int(column), message)
        for row, column, code, message in pattern.findall(text)
    ]


def test_all_formats_give_the_same_findings() -> None:
    report = report_of(path="src/train it.py")
    expected = [
        (each.path, each.finding.code, each.start.row, each.start.column, each.finding.message)
        for each in report.entries
    ]
    assert len(expected) == 4
    assert from_json(report) == expected
    assert from_sarif(report) == expected
    assert from_grouped(report) == expected
    for form in ("full", "concise", "github"):
        assert from_lines(report, form) == expected, form


def test_json_has_the_fields_of_ruff_and_our_own(snapshot: SnapshotAssertion) -> None:
    (found,) = json.loads(render(report_of(findings=sample_findings(SCRIPT)[1:2]), PLAIN, "json"))
    assert found.pop("filename") == str(Path.cwd() / "train.py")
    assert found == snapshot


def test_the_edits_of_json_make_the_fix() -> None:
    source = Source("train.py", SCRIPT)
    finding = sample_findings(SCRIPT)[2]
    assert finding.fix is not None
    (found,) = json.loads(render(report_of(findings=[finding]), PLAIN, "json"))
    text = SCRIPT
    for edit in reversed(found["fix"]["edits"]):
        start = source.offset(Position(**edit["location"]))
        end = source.offset(Position(**edit["end_location"]))
        text = text[:start] + edit["content"] + text[end:]
    assert text == apply_edits(SCRIPT, finding.fix.edits)


def test_sarif_has_rules_with_their_pages() -> None:
    run = sarif_run(report_of())
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["invocations"] == [{"executionSuccessful": True}]
    driver = run["tool"]["driver"]
    assert driver["name"] == "torchlint"
    assert [rule["id"] for rule in driver["rules"]] == ["TL201", "TL206", "TL401", "XY001"]
    assert driver["rules"][0] == {
        "id": "TL201",
        "name": "sync-in-training-loop",
        "shortDescription": {"text": "waits"},
        "help": {"text": PAGE, "markdown": PAGE},
        "defaultConfiguration": {"enabled": True, "level": "error"},
        "properties": {"category": "host and device", "impact": "high"},
    }
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert set(result) <= {
            "ruleId",
            "ruleIndex",
            "level",
            "message",
            "locations",
            "relatedLocations",
            "fixes",
            "partialFingerprints",
        }
        assert result["level"] in {"error", "warning", "note"}


def test_sarif_has_fixes_and_notes(snapshot: SnapshotAssertion) -> None:
    (result,) = sarif_run(report_of(findings=sample_findings(SCRIPT)[1:2]))["results"]
    assert result == snapshot


def test_sarif_fingerprints_outlive_other_lines() -> None:
    def fingerprints(text: str) -> list[str]:
        found = sample_findings(text)
        results = sarif_run(report_of(text, [found[1], found[2], found[2]]))["results"]
        return [result["partialFingerprints"]["torchlint/v1"] for result in results]

    first = fingerprints(SCRIPT)
    assert len(set(first)) == 3
    assert fingerprints("import os\n\n" + SCRIPT) == first


def test_sarif_says_when_the_run_failed() -> None:
    assert sarif_run(Report((), failed=True))["invocations"] == [{"executionSuccessful": False}]
