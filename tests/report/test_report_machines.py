from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from jsonschema import Draft4Validator
from report_samples import PAGE, SCRIPT, report_of, sample_findings
from syrupy.assertion import SnapshotAssertion

from torchlint.config import FORMATS
from torchlint.edit import apply_edits
from torchlint.finding import Note
from torchlint.measurement import Measurement
from torchlint.report.formats import render
from torchlint.report.paint import Paint
from torchlint.report.report import Report, Unfinished
from torchlint.source import Position, Source

PLAIN = Paint()

Place = tuple[str, str, int, int, str]


def sarif_run(report: Report) -> dict[str, Any]:
    """Return the one run of a SARIF log."""
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
        r"^(?:::\w+ .*?::)?(.+?):(\d+):(\d+): ([A-Z]+\d+) \[[a-z-]+\] "
        r"(?:(?:high|medium|low)[^:]*: )?(.*?)(?: \(\w+ fix\))?$",
        re.MULTILINE,
    )
    found = pattern.findall(render(report, PLAIN, form))
    return [(path, code, int(row), int(column), text) for path, row, column, code, text in found]


def from_grouped(report: Report) -> list[Place]:
    text = render(report, PLAIN, "grouped")
    path = text.splitlines()[0].removesuffix(":")
    pattern = re.compile(
        r"^  (\d+):(\d+) +([A-Z]+\d+) \[[a-z-]+\] "
        r"(?:(?:high|medium|low)[^:]*: )?(.*?)(?: \(\w+ fix\))?$",
        re.MULTILINE,
    )
    return [
        (path, code, int(row), int(column), message)
        for row, column, code, message in pattern.findall(text)
    ]


def from_gitlab(report: Report) -> list[tuple[str, str, int, str]]:
    """Return path, code, row and message: GitLab knows no columns."""
    pattern = re.compile(r"([A-Z]+\d+) \[[a-z-]+\] (?:(?:high|medium|low)[^:]*: )?(.*)")
    found = []
    for issue in json.loads(render(report, PLAIN, "gitlab")):
        match = pattern.fullmatch(issue["description"])
        assert match is not None
        assert match[1] == issue["check_name"]
        where = issue["location"]
        found.append((where["path"], match[1], where["lines"]["begin"], match[2]))
    return found


def from_junit(report: Report) -> list[Place]:
    pattern = re.compile(r"(.+?):(\d+):(\d+): (.*?)(?:\n.* \(\w+\))?")
    found = []
    for failure in ElementTree.fromstring(render(report, PLAIN, "junit")).iter("failure"):
        match = pattern.fullmatch(failure.text or "")
        assert match is not None
        assert match[4] == failure.get("message")
        found.append((match[1], str(failure.get("type")), int(match[2]), int(match[3]), match[4]))
    return found


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
    assert from_junit(report) == expected
    assert from_gitlab(report) == [(path, code, row, said) for path, code, row, _, said in expected]
    for form in ("full", "concise", "github"):
        assert from_lines(report, form) == expected, form


def test_azure_and_pylint_have_the_form_of_ruff() -> None:
    report = report_of(path="a;b]%.py", findings=sample_findings(SCRIPT)[2:3])
    message = sample_findings(SCRIPT)[2].message
    place, command = Path.cwd() / "a%3Bb%5D%AZP25.py", render(report, PLAIN, "azure")
    row, column = report.entries[0].start
    head = f"sourcepath={place};linenumber={row};columnnumber={column};code=TL201;]a;b]%AZP25.py"
    assert command.startswith(f"##vso[task.logissue type=error;{head}")
    assert command.endswith(f": {message}\n")
    assert render(report, PLAIN, "pylint") == f"a;b]%.py:{row}: [TL201] {message}\n"


def test_json_has_the_fields_of_ruff_and_our_own(snapshot: SnapshotAssertion) -> None:
    (found,) = json.loads(render(report_of(findings=sample_findings(SCRIPT)[1:2]), PLAIN, "json"))
    assert found.pop("filename") == str(Path.cwd() / "train.py")
    assert found == snapshot


def test_json_has_what_was_measured_of_the_rule() -> None:
    (entry,) = report_of(findings=sample_findings(SCRIPT)[:1]).entries
    measured = Measurement("H200", "2.13", "FASTER", 1.5, 1.4, 1.6)
    entry = replace(entry, card=entry.card._replace(evidence=measured))
    (found,) = json.loads(render(Report((entry,)), PLAIN, "json"))
    assert found["evidence"] == {
        "verdict": "FASTER",
        "speedup": {"ratio": 1.5, "low": 1.4, "high": 1.6},
        "device": "H200",
        "torch": "2.13",
    }


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
        "fullDescription": {"text": "Flags .item() on every step."},
        "help": {"text": PAGE.replace("## ", ""), "markdown": PAGE},
        "defaultConfiguration": {"enabled": True, "level": "error"},
        "properties": {
            "tags": ["performance", "host and device"],
            "category": "host and device",
            "impact": "high",
        },
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


def sarif_fingerprints(report: Report) -> list[str]:
    results = sarif_run(report)["results"]
    return [result["partialFingerprints"]["torchlint/v1"] for result in results]


def gitlab_fingerprints(report: Report) -> list[str]:
    return [issue["fingerprint"] for issue in json.loads(render(report, PLAIN, "gitlab"))]


@pytest.mark.parametrize("fingerprints", [sarif_fingerprints, gitlab_fingerprints])
def test_fingerprints_outlive_other_lines(fingerprints: Callable[[Report], list[str]]) -> None:
    def of(text: str) -> list[str]:
        found = sample_findings(text)
        return fingerprints(report_of(text, [found[1], found[2], found[2]]))

    first = of(SCRIPT)
    assert len(set(first)) == 3
    assert of("import os\n\n" + SCRIPT) == first
    assert of(SCRIPT.replace("net.to(device)", "net.cuda()")) == first
    assert of(SCRIPT.replace('損失 = "損失"', 'loss = "損失"')) != first


SCHEMA = json.loads(Path(__file__).with_name("sarif-schema-2.1.0.json").read_text())
"""That of the standard itself."""


@pytest.mark.parametrize(
    "report",
    [
        Report(()),
        Report((), failed=True),
        report_of(),
        report_of(path="/tmp/an other/train.py"),
        report_of(path="a\r\n::error::\x1b損.py"),
    ],
    ids=["empty", "failed", "findings", "absolute path", "hostile path"],
)
def test_sarif_is_valid_by_the_schema_of_the_standard(report: Report) -> None:
    log = json.loads(render(report, PLAIN, "sarif"))
    Draft4Validator(SCHEMA).validate(log)
    for result in log["runs"][0]["results"]:
        assert {"level", "partialFingerprints", "ruleIndex"} <= result.keys()


def test_the_schema_refuses_what_it_should() -> None:
    log = json.loads(render(report_of(), PLAIN, "sarif"))
    log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    assert not Draft4Validator(SCHEMA).is_valid(log)


GITLAB = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "additionalProperties": False,
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "pattern": "^[A-Z]+[0-9]{3}$"},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "additionalProperties": False,
                "properties": {
                    "path": {"type": "string", "pattern": "^[^./]"},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "additionalProperties": False,
                        "properties": {
                            "begin": {"type": "integer", "minimum": 1},
                            "end": {"type": "integer", "minimum": 1},
                        },
                    },
                },
            },
        },
    },
}
"""What GitLab's documentation says of a Code Quality report."""


def test_gitlab_gets_what_it_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    report = report_of(path="src/train.py")
    issues = json.loads(render(report, PLAIN, "gitlab"))
    Draft4Validator(GITLAB).validate(issues)
    assert len({issue["fingerprint"] for issue in issues}) == len(issues) == 4
    assert [issue["severity"] for issue in issues] == ["info", "minor", "info", "major"]
    monkeypatch.setenv("CI_PROJECT_DIR", str(Path.cwd().parent))
    (path,) = {each["location"]["path"] for each in json.loads(render(report, PLAIN, "gitlab"))}
    assert path == f"{Path.cwd().name}/src/train.py"
    absolute = report_of(path=str(Path("src/train.py").absolute()))
    assert json.loads(render(absolute, PLAIN, "gitlab")) == json.loads(
        render(report, PLAIN, "gitlab")
    )


ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "time"},
    "testsuite": {"name", "file", "tests", "failures", "errors", "time"},
    "testcase": {"name", "classname", "time"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error"},
    "failure": set[str](),
    "error": set[str](),
}


@pytest.mark.parametrize(
    ("report", "counts"),
    [
        (report_of(path="src/train it.py"), ("4", "4", "0")),
        (Report((), files=2), ("1", "0", "0")),
        (Report((), failed=True), ("1", "0", "1")),
        (Report(report_of().entries, failed=True), ("5", "4", "1")),
    ],
    ids=["findings", "clean", "failed", "findings and failed"],
)
def test_junit_has_the_elements_that_jenkins_knows(
    report: Report, counts: tuple[str, str, str]
) -> None:
    root = ElementTree.fromstring(render(report, PLAIN, "junit"))
    assert root.tag == "testsuites"
    for element in root.iter():
        assert element.attrib.keys() <= ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN[element.tag]
    numbers = ("tests", "failures", "errors")
    assert tuple(root.get(name) for name in numbers) == counts
    for name, tag in zip(numbers, ("testcase", "failure", "error"), strict=True):
        assert int(root.get(name, "")) == len(list(root.iter(tag)))
        assert sum(int(suite.get(name, "")) for suite in root) == int(root.get(name, ""))


def test_sarif_says_when_the_run_failed() -> None:
    assert sarif_run(Report((), failed=True))["invocations"] == [{"executionSuccessful": False}]


def test_sarif_names_what_could_not_be_finished() -> None:
    said = "a b.py is nested too deeply for TL201; other rules ran"
    report = Report((), 1, unfinished=(Unfinished("a b.py", said),))
    log = json.loads(render(report, PLAIN, "sarif"))
    Draft4Validator(SCHEMA).validate(log)
    where = {"physicalLocation": {"artifactLocation": {"uri": "a%20b.py"}}}
    assert sarif_run(report)["invocations"] == [
        {
            "executionSuccessful": True,
            "toolExecutionNotifications": [
                {"level": "warning", "message": {"text": said}, "locations": [where]}
            ],
        }
    ]


def test_a_note_about_another_file_is_in_every_format() -> None:
    """Name the file and the line of a note, and leave findings without such notes as they are."""
    plain = sample_findings(SCRIPT)[2:3]
    noted = [replace(plain[0], notes=(Note.elsewhere("the loop that calls it", "run.py", 88),))]
    told, before = (
        {form: render(report_of(findings=each), PLAIN, form) for form in FORMATS}
        for each in (list(noted), list(plain))
    )
    for form in FORMATS:
        assert "run.py" not in before[form]
        assert "the loop that calls it" in told[form]
    for form in ("full", "concise", "grouped"):
        added = [each for each in told[form].splitlines() if each not in before[form].splitlines()]
        assert [each.strip() for each in added] == ["note: run.py:88: the loop that calls it"]
    (found,) = json.loads(told["json"])
    place = {"row": 88, "column": 1}
    assert found["notes"] == [
        {
            "message": "the loop that calls it",
            "filename": str(Path("run.py").absolute()),
            "location": place,
            "end_location": place,
        }
    ]
    (result,) = sarif_run(report_of(findings=list(noted)))["results"]
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"] == {
        "artifactLocation": {"uri": "run.py"},
        "region": {"startLine": 88},
    }
    for form in ("azure", "github", "gitlab", "pylint", "junit", "markdown", "rdjson"):
        assert "; the loop that calls it (run.py:88)" in told[form]
