"""One line makes the examples of a pack test cases of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_shell import PACK

pytest_plugins = ["pytester"]
LINE = "from torchlint.testing import rule_tests\ntest_rules = rule_tests({!r})\n"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Give a folder for tests of packs, which start from nothing."""
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=":")
    return pytester


def _run(tester: pytest.Pytester, package: str) -> pytest.RunResult:
    tester.makepyfile(test_pack=LINE.format(package))
    return tester.runpytest_subprocess("-v", "-p", "no:cacheprovider")


def _copied(tester: pytest.Pytester, old: str, new: str, *names: str) -> None:
    """Copy rules of the tiny pack into a package `ours`, with one change."""
    folder = tester.mkpydir("ours")
    for name in ("words.py", *names):
        text = (PACK / "tinypack" / name).read_text()
        (Path(folder) / name).write_text(text.replace(old, new))


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
    result.stdout.fnmatch_lines(["XY201, 'a call'", "the fixes make another text", "+fast()"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*torchlint/testing*")


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
