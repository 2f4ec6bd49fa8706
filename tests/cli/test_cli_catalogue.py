from __future__ import annotations

import json

from cli_shell import Shell
from syrupy.assertion import SnapshotAssertion


def test_rules_lists_every_rule(quick: Shell) -> None:
    done = quick.run("rules")
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["XY201", "slow-call", "exact", "high", *"there is a fast one".split()] in lines
    assert ["XY401", "heavy-call", "-", "low", *"think of another way".split()] in lines
    assert any(line[:2] == ["TL001", "unparsable-file"] for line in lines)


def test_rules_as_json(quick: Shell) -> None:
    rules = {
        rule["code"]: rule
        for rule in json.loads(quick.run("rules", "--output-format", "json").stdout)
    }
    assert list(rules) == sorted(rules)
    assert rules["XY301"] | {"page": ""} == {
        "code": "XY301",
        "name": "risky-call",
        "summary": "there is a faster one that differs",
        "category": None,
        "groups": ["perf"],
        "url": None,
        "impact": "medium",
        "safety": "unsafe",
        "default": True,
        "since": "0.4",
        "page": "",
    }
    assert rules["XY301"]["page"].startswith("## What it does\n")


def test_explain_prints_the_page_by_code_or_name(quick: Shell, snapshot: SnapshotAssertion) -> None:
    done = quick.run("explain", "XY201")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == snapshot
    assert quick.run("explain", "slow-call").stdout == done.stdout


def test_config_names_the_source_of_each_setting(quick: Shell) -> None:
    quick.write("pyproject.toml", '[tool.torchlint]\nselect = ["XY2"]\ntarget-torch = "2.4"\n')
    done = quick.run("config", "--ignore", "XY4", "--per-file-ignores", "tests/*:XY2")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.startswith('select = ["XY2"]') and "pyproject.toml" in line for line in lines)
    assert any(line.startswith('target-torch = "2.4"  # ') for line in lines)
    assert 'ignore = ["XY4"]  # command line' in lines
    assert 'per-file-ignores = { "tests/*" = ["XY2"] }  # command line' in lines
    assert "unsafe-fixes = false  # default" in lines


def test_the_help_names_every_command(quick: Shell, snapshot: SnapshotAssertion) -> None:
    assert quick.run("--help").stdout == snapshot
    assert quick.run("check", "--help").stdout == snapshot
    done = quick.run()
    assert done.stdout.startswith("Usage: torchlint")
    assert done.returncode == 2
