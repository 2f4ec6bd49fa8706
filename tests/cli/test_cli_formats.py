from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_shell import TRAIN, Shell
from jsonschema import Draft4Validator
from notebook_samples import code, markdown, notebook

from torchlint.config import FORMATS

SCHEMA = json.loads((Path(__file__).parents[1] / "report" / "sarif-schema-2.1.0.json").read_text())
EXPECTED = [
    ("a.py", "XY201", 3),
    ("a.py", "XY301", 5),
    ("a.py", "XY401", 6),
    ("notes.ipynb", "XY201", 2),
    ("notes.ipynb", "XY401", 1),
]
"""Rows of the notebook count from the top of the cell."""

Place = tuple[str, str, int]


def from_text(text: str) -> list[Place]:
    mark = r"(?:::\w+ .*?::|##vso.*?])?"
    found = re.findall(rf"^{mark}([\w.]+):(?:cell \d+:)?(\d+):\d+: (\w+)", text, re.M)
    return [(path, code, int(row)) for path, row, code in found]


def from_grouped(text: str) -> list[Place]:
    places, path = [], ""
    for line in text.splitlines():
        if line.endswith(":"):
            path = line[:-1]
        elif match := re.match(r"  (?:cell \d+:)?(\d+):\d+ +(\w+) ", line):
            places.append((path, match[2], int(match[1])))
    return places


def from_json(found: list[Any]) -> list[Place]:
    return [
        (each["filename"].rpartition("/")[2], each["code"], each["location"]["row"])
        for each in found
    ]


def from_sarif(text: str) -> list[Place]:
    places = []
    Draft4Validator(SCHEMA).validate(json.loads(text))
    for result in json.loads(text)["runs"][0]["results"]:
        where = result["locations"][0]["physicalLocation"]
        path = where["artifactLocation"]["uri"]
        places.append((path, result["ruleId"], where["region"]["startLine"]))
    return places


def from_gitlab(text: str) -> list[Place]:
    return [
        (each["location"]["path"], each["check_name"], each["location"]["lines"]["begin"])
        for each in json.loads(text)
    ]


def from_junit(text: str) -> list[Place]:
    places = []
    for suite in ElementTree.fromstring(text):
        for case in suite:
            rule, _, *_, place = case.get("name", "").split(" ")
            row = int(place.split(":")[-2])
            places.append((suite.get("file", ""), rule, row))
    return places


def from_markdown(text: str) -> list[Place]:
    found = re.findall(r"^\| ([\w.]+):(?:cell \d+:)?(\d+):\d+ \| (\w+) ", text, re.M)
    return [(path, code, int(row)) for path, row, code in found]


def from_rdjson(text: str) -> list[Place]:
    return [
        (
            each["location"]["path"],
            each["code"]["value"],
            each["location"].get("range", {"start": {"line": 1}})["start"]["line"],
        )
        for each in json.loads(text)["diagnostics"]
    ]


def from_pylint(text: str) -> list[Place]:
    found = re.findall(r"^([\w.]+):(\d+): \[(\w+)\] ", text, re.M)
    return [(path, code, int(row)) for path, row, code in found]


READERS: dict[str, Callable[[str], list[Place]]] = {
    "full": from_text,
    "concise": from_text,
    "github": from_text,
    "grouped": from_grouped,
    "json": lambda text: from_json(json.loads(text)),
    "json-lines": lambda text: from_json([json.loads(line) for line in text.splitlines()]),
    "sarif": from_sarif,
    "gitlab": from_gitlab,
    "junit": from_junit,
    "markdown": from_markdown,
    "rdjson": from_rdjson,
    "azure": from_text,
    "pylint": from_pylint,
}
AT_THE_TOP = {"gitlab", "pylint", "rdjson", "sarif"}
"""Formats without a word for cells: what is found in a notebook stands at its first line."""


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_tells_of_the_same_findings(quick: Shell, form: str) -> None:
    quick.write("a.py", TRAIN)
    cells = (markdown("# Digits"), code("x = 1\nslow()\n"), code("heavy()\n"))
    quick.write("notes.ipynb", notebook(*cells))
    done = quick.check("--output-format", form)
    assert (done.returncode, done.stderr) == (1, "")
    expected = [
        (path, rule, 1 if form in AT_THE_TOP and path.endswith(".ipynb") else row)
        for path, rule, row in EXPECTED
    ]
    assert READERS[form](done.stdout) == expected
