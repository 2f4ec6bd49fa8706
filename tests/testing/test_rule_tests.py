"""One line makes the examples of a pack test cases of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_shell import PACK

pytest_plugins = ["pytester"]
IN_PYTHON = '''
from torchlint.api import Finding, Rule, Span

class SlowCall(Rule):
    """
    ## What it does
    Nothing.

    ## Why it is slow
    It is a test.

    ## When not to
    Never.

    ## Fix safety
    None.
    """

    code = "XY201"
    name = "slow-call"
    summary = "there is a fast one"
    impact = "high"
    safety = None
    needs = ("slow",)
    invalid = {"a call": "! import torch, slow"}
    valid = {"another call": "other()"}

    def check(self, script):
        yield Finding(self.code, Span(0, 1), "slow")
'''
LINE = "from torchlint.testing import rule_tests\ntest_rules = rule_tests({!r})\n"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a folder for tests of packs, which start from nothing."""
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=":")
    return pytester


def _run(tester: pytest.Pytester, package: str) -> pytest.RunResult:
    tester.makepyfile(test_pack=LINE.format(package))
    return tester.runpytest_subprocess("-v", "-p", "no:cacheprovider")


def _copied(tester: pytest.Pytester, old: str, new: str, *names: str) -> None:
    """Copy rules of the tiny pack into a package `ours`, with one change of their pages."""
    folder = tester.mkpydir("ours")
    for name in ("words.py", *names):
        file = PACK / "tinypack" / name
        (Path(folder) / name).write_text(file.read_text())
        page = file.with_suffix(".md")
        if page.is_file():
            (Path(folder) / page.name).write_text(page.read_text().replace(old, new))


def test_every_example_is_a_case(run: pytest.Pytester) -> None:
    _copied(run, "", "", "xy201_slow_call.py", "xy401_heavy_call.py")
    result = _run(run, "ours")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_rules?XY201: a call? PASSED*"])


def test_an_example_that_does_not_hold_is_shown_without_a_traceback(
    run: pytest.Pytester,
) -> None:
    _copied(run, "+ fast()", "+ quick()", "xy201_slow_call.py")
    result = _run(run, "ours")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["XY201, 'a call'", "the fixes give a different text", "+fast()"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*torchlint/testing*")


def test_a_page_that_is_malformed_is_shown_with_its_line(run: pytest.Pytester) -> None:
    _copied(run, "```diff", "```python", "xy201_slow_call.py")
    result = _run(run, "ours")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*xy201_slow_call.md:26: the code of this example begins with*"])


def test_a_page_in_python_is_tested_with_a_warning(run: pytest.Pytester) -> None:
    folder = Path(run.mkpydir("ours"))
    (folder / "xy201_slow_call.py").write_text(IN_PYTHON)
    result = _run(run, "ours")
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*DeprecationWarning: rule pack `ours`: the page of xy201*"])


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("no_such_pack", "rule pack `no_such_pack`: there is no package no_such_pack"),
        ("json", "the package json holds no rules"),
    ],
)
def test_what_is_no_pack_fails(run: pytest.Pytester, package: str, said: str) -> None:
    result = _run(run, package)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])


def test_a_rule_that_cannot_be_imported_fails_alone(run: pytest.Pytester) -> None:
    _copied(run, "a call", "a call", "xy201_slow_call.py", "xy401_heavy_call.py")
    (run.path / "ours" / "xy401_heavy_call.py").write_text("import no_such_thing\n")
    result = _run(run, "ours")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*ours.xy401_heavy_call cannot be imported: ModuleNotFound*"])
