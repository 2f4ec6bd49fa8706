"""Severity, and the step from which on findings fail a run."""

from __future__ import annotations

import json

import pytest
from cli_shell import TRAIN, Shell


def levels(shell: Shell, *options: str) -> dict[str, str]:
    """Return the severity of every finding by its code."""
    found = json.loads(shell.check("--output-format", "json", *options).stdout)
    return {each["code"]: each["severity"] for each in found}


def test_severity_follows_impact(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    assert levels(quick) == {"XY201": "error", "XY301": "warning", "XY401": "note"}


def test_settings_choose_a_severity_and_the_more_specific_word_wins(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    quick.write("torchlint.toml", 'severity = { XY = "warning", slow-call = "note", XY4 = "off" }')
    assert levels(quick) == {"XY201": "note", "XY301": "warning"}
    said = quick.check("--output-format", "github").stdout.splitlines()
    assert [line.partition(" ")[0] for line in said] == ["::notice", "::warning"]
    run = json.loads(quick.check("--output-format", "sarif").stdout)["runs"][0]
    assert [each["level"] for each in run["results"]] == ["note", "warning"]


@pytest.mark.parametrize(
    ("step", "text", "code"),
    [
        ("high", "slow()\n", 1),
        ("error", "slow()\n", 1),
        ("high", "risky()\nheavy()\n", 0),
        ("medium", "risky()\n", 1),
        ("warning", "heavy()\n", 0),
        ("low", "heavy()\n", 1),
    ],
)
def test_findings_below_the_step_are_printed_and_do_not_fail(
    quick: Shell, step: str, text: str, code: int
) -> None:
    quick.write("a.py", text)
    done = quick.check("--fail-on", step)
    assert done.returncode == code
    assert "Found" in done.stdout
    assert quick.check("--fix", "--fail-on", step).returncode == (code and text != "slow()\n")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('severity = { XY = "bad" }', "`severity`: must be one of error, warning, note, off"),
        ('severity = { XZ9 = "note" }', "torchlint.toml:1: unknown code or name `XZ9`"),
        ('fail-on = "hgih"', "did you mean `high`?"),
    ],
)
def test_a_wrong_severity_is_an_error(quick: Shell, setting: str, said: str) -> None:
    quick.write("a.py", TRAIN)
    quick.write("torchlint.toml", setting)
    done = quick.check()
    assert done.returncode == 2
    assert said in done.stderr
