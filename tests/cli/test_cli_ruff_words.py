"""The words of Ruff's users: options and commands that work, and hints for the others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_shell import TRAIN, Shell

from torchlint.cli.check import check
from torchlint.cli.fix import fix
from torchlint.config import Settings

FIXED = TRAIN.replace("slow", "fast")
PAGE = Path(__file__).parents[2] / "docs" / "guide" / "ruff.md"


def test_check_with_fix_writes_fixes_and_fails_on_the_rest(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    done = quick.check("--fix", "--output-format", "concise")
    assert quick.read("a.py") == FIXED
    assert done.returncode == 1
    assert done.stderr == "Made 1 fix in 1 file.\n"
    assert [line.split()[1] for line in done.stdout.splitlines()[:2]] == ["XY301", "XY401"]


def test_check_with_fix_is_0_if_nothing_is_left(quick: Shell) -> None:
    quick.write("a.py", "slow()\n")
    assert quick.check("--fix").returncode == 0
    quick.write("a.py", "slow()\n")
    assert quick.check("--fix", "--exit-non-zero-on-fix").returncode == 1
    assert quick.check("--fix", "--exit-non-zero-on-fix").returncode == 0


def test_fix_fails_on_a_written_fix_when_asked(quick: Shell) -> None:
    quick.write("a.py", "slow()\n")
    assert quick.fix("--apply", "--exit-non-zero-on-fix").returncode == 1


def test_unsafe_fixes_and_no_fix_mean_what_they_mean_in_ruff(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    assert quick.check("--fix", "--no-fix").returncode == 1
    assert quick.read("a.py") == TRAIN
    quick.check("--fix", "--unsafe-fixes")
    assert quick.read("a.py") == FIXED.replace("risky", "daring")


@pytest.mark.parametrize("command", ["check", "fix"])
def test_diff_writes_nothing_and_fails_if_there_is_one(quick: Shell, command: str) -> None:
    quick.write("a.py", TRAIN)
    more = ["--fix"] if command == "check" else ["--apply"]
    done = quick.run(command, "--select", "XY", "--diff", *more, "a.py")
    assert done.returncode == 1
    assert "-slow()\n+fast()\n" in done.stdout
    assert quick.read("a.py") == TRAIN
    quick.write("a.py", FIXED)
    assert quick.run(command, "--select", "XY", "--diff", "a.py").returncode == 0


def test_fix_only_reports_nothing_and_does_not_fail(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    done = quick.check("--fix-only", "--show-fixes")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Made 1 fix in 1 file:\n- a.py:\n    1 x XY201\n"
    assert quick.read("a.py") == FIXED


def test_standard_input_is_fixed_on_standard_output(quick: Shell) -> None:
    done = quick.check("--fix", "--output-format", "concise", "-", text=TRAIN)
    assert (done.returncode, done.stdout) == (1, FIXED)
    assert done.stderr.startswith("-:5:5: XY301")


def test_fixing_is_not_replayed(shell: Shell) -> None:
    shell.write("a.py", "slow()\n")
    for _ in range(2):
        shell.write("a.py", "slow()\n")
        shell.run("check", "--select", "XY", "--fix")
        assert shell.read("a.py") == "fast()\n"


@pytest.mark.parametrize("option", ["--add-noqa", "--write-baseline"])
def test_fixes_do_not_go_with_what_silences_findings(quick: Shell, option: str) -> None:
    quick.write("a.py", TRAIN)
    done = quick.check("--fix", option)
    assert done.returncode == 2
    assert "cannot go together" in done.stderr
    assert quick.read("a.py") == TRAIN


def test_noqa_is_added_and_ignored(quick: Shell) -> None:
    quick.write("a.py", "slow()\n")
    assert quick.check("--add-noqa").returncode == 0
    assert quick.check().returncode == 0
    assert quick.check("--ignore-noqa").returncode == 1


def test_show_settings_prints_what_config_prints(quick: Shell) -> None:
    quick.write("torchlint.toml", "jobs = 3\n")
    shown = quick.run("check", "--show-settings", "--quiet")
    assert "jobs = 3" in shown.stdout
    assert shown.stdout == quick.run("config").stdout.replace(
        "quiet = false  # default", "quiet = true  # command line"
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (["rule", "TL801"], ["explain", "TL801"]),
        (["rule", "anomaly-detection"], ["explain", "TL801"]),
        (["linter"], ["rules"]),
        (["lint", "--isolated"], ["check", "--isolated"]),
        (["version"], ["--version"]),
    ],
)
def test_commands_of_ruff(quick: Shell, theirs: list[str], ours: list[str]) -> None:
    quick.write("a.py", "x = 1\n")
    said = quick.run(*theirs)
    assert said.stdout == quick.run(*ours).stdout != ""
    assert said.returncode == 0


def test_rule_all_prints_every_page(quick: Shell) -> None:
    said = quick.run("rule", "--all").stdout
    assert "# TL001 unparsable-file" in said
    assert "# TL903 aliased-best-weights" in said


def test_clean_empties_caches_and_removes_nothing_else(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    quick.write("kept/own.json", "{}")
    quick.write("torchlint.toml", 'cache-dir = "kept"\n')
    quick.run("check", "--select", "XY")
    quick.run("check", "--select", "XY", "--cache-dir", ".torchlint_cache")
    done = quick.run("clean")
    assert done.stderr.endswith("Emptied 2 caches.\n")
    assert sorted(each.name for each in (quick.folder / "kept").iterdir()) == [
        ".gitignore",
        "own.json",
    ]
    assert not (quick.folder / ".torchlint_cache").exists()
    assert quick.run("clean").stderr == "Emptied 0 caches.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "--target-version", "py310"], "`--target-torch` names the oldest torch"),
        (["check", "--fxi"], "did you mean `--fix`?"),
        (["fix", "--write-baseline"], "it is one of `torchlint check`"),
        (["check", "--silent"], "use `--quiet`"),
        (["format"], "use `ruff format`"),
        (["benchmark"], "use `torchlint verify`"),
        (["perf"], "`torchlint --help` lists them"),
        (["lnt"], "did you mean `lint`?"),
        (["explain", "TL999"], "the nearest codes are TL901, TL902, TL903"),
        (["explain", "TL55"], "the nearest codes are TL501"),
        (["check", "--select", "TL999"], "the nearest codes are TL901, TL902, TL903"),
        (["explain"], "name one rule"),
    ],
)
def test_an_unknown_word_gets_a_hint(quick: Shell, arguments: list[str], said: str) -> None:
    done = quick.run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr


def rows() -> dict[str, tuple[str, str]]:
    """Return state and remark of every option in the table of the guide."""
    found = re.findall(r"^\| `(-[-\w]+).*?` \| (\w+) \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    return {option: (state, remark) for option, state, remark in found}


def test_the_guide_names_every_option_of_ruff_check() -> None:
    ruff = Path(sys.executable).with_name("ruff")
    if not ruff.is_file():
        pytest.skip("Ruff is not installed beside this Python")
    said = subprocess.run([ruff, "check", "--help"], capture_output=True, text=True, check=True)
    theirs = set(re.findall(r"^ {2,6}(?:-\w, )?(--[\w-]+)", said.stdout, re.MULTILINE))
    assert theirs - {"--help"} == set(rows())


def test_options_that_work_are_options_of_check() -> None:
    ours = {name for param in check.params for name in param.opts}
    for option, (state, remark) in rows().items():
        assert state in ("works", "equivalent", "none")
        assert (option in ours) == (state == "works"), option
        named = set(re.findall(r"`(--[\w-]+)", remark)) if state == "equivalent" else set()
        assert named <= ours
    assert Settings().fixable == ("ALL",)


@pytest.mark.parametrize("command", ["check", "fix"])
def test_the_help_lists_every_option_by_subject(quick: Shell, command: str) -> None:
    said = quick.run(command, "--help").stdout
    headings = re.findall(r"^(\w[\w ]+):$", said, re.MULTILINE)
    assert headings == [
        *("Fixes", "Rules", "Files", "Report", "Exit code", "Cache", "Run", "Configuration")
    ]
    params = (check if command == "check" else fix).params
    for param in params:
        if param.param_type_name == "option":
            assert param.opts[0] in said
