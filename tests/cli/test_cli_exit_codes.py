from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_shell import TRAIN, Shell
from processes import stopped


def test_check_of_clean_code_is_0(shell: Shell) -> None:
    shell.write("a.py", "print(1)\n")
    done = shell.check()
    assert (done.returncode, done.stdout, done.stderr) == (0, "Nothing found in 1 file.\n", "")


def test_check_with_findings_is_1_and_0_when_asked(shell: Shell) -> None:
    shell.write("a.py", TRAIN)
    assert shell.check().returncode == 1
    assert shell.check("--exit-zero").returncode == 0


def test_fix_without_apply_is_1_when_there_is_something_to_change(shell: Shell) -> None:
    shell.write("a.py", TRAIN)
    assert shell.fix().returncode == 1
    assert shell.read("a.py") == TRAIN
    shell.write("a.py", "heavy()\nrisky()\n")
    assert shell.fix().returncode == 0


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("x = 1\n", [], "Nothing to fix."),
        ("slow()\n", [], "1 fix in 1 file: `--apply` writes it."),
        (
            "slow()\nslow()\nrisky()\n",
            [],
            "2 fixes in 1 file: `--apply` writes them, `--unsafe-fixes` would make 1 more.",
        ),
        ("risky()\n", [], "Nothing to fix, `--unsafe-fixes` would make 1 fix."),
        (
            "slow()\nrisky()\n",
            ["--unsafe-fixes"],
            "2 fixes in 1 file: `--apply` writes them.",
        ),
    ],
)
def test_fix_says_what_to_do_next(quick: Shell, text: str, options: list[str], said: str) -> None:
    quick.write("a.py", text)
    assert quick.fix(*options).stderr == f"{said}\n"


def test_fix_with_apply_is_0_when_what_is_left_has_no_enabled_fix(shell: Shell) -> None:
    shell.write("a.py", TRAIN)
    done = shell.fix("--apply", "--output-format", "concise")
    assert done.returncode == 0
    assert done.stderr == "Made 1 fix in 1 file.\n"
    assert done.stdout == (
        "a.py:5:5: XY301 [risky-call] medium: `risky` could be faster (unsafe fix)\n"
        "a.py:6:1: XY401 [heavy-call] low: `heavy` is heavy: think of another way\n"
        "Found 2 findings: 1 fixable with `torchlint fix --apply --unsafe-fixes`.\n"
        "Most worth: XY301, XY401. `torchlint verify a.py` proves it.\n"
    )
    assert shell.read("a.py") == TRAIN.replace("slow", "fast")
    assert shell.fix("--apply").stderr == "Nothing to fix.\n"


def test_fix_makes_unsafe_fixes_when_asked(shell: Shell) -> None:
    shell.write("a.py", TRAIN)
    assert shell.fix("--apply", "--unsafe-fixes", "--quiet").stderr == ""
    assert shell.read("a.py") == TRAIN.replace("slow", "fast").replace("risky", "daring")


@pytest.mark.parametrize("command", ["check", "fix"])
def test_a_path_that_does_not_exist_is_2_and_the_others_still_run(
    shell: Shell, command: str
) -> None:
    shell.write("a.py", TRAIN)
    done = shell.run(command, "--select", "XY", "--no-cache", "gone.py", "a.py")
    assert done.returncode == 2
    assert done.stderr.startswith("error: gone.py does not exist\n")
    assert "slow" in done.stdout


@pytest.mark.parametrize(("first", "code"), [("slow()\n", 1), ("", 0)])
def test_a_rule_that_fails_is_a_warning_and_no_traceback(
    shell: Shell, first: str, code: int
) -> None:
    shell.write("a.py", f"{first}explode()\n")
    for _ in range(2):  # what is kept of the first run does not hide it from the second
        done = shell.check("--output-format", "concise")
        assert done.returncode == code
        assert ("a.py:1:1: XY201" in done.stdout) == bool(first)
        assert done.stderr.startswith("warning: internal error in XY901 on a.py (please report)")
        assert len(done.stderr.splitlines()) == 1


def test_a_file_that_was_not_checked_in_full_is_not_called_clean(shell: Shell) -> None:
    shell.write("a.py", "explode()\n")
    shell.write("b.py", "pass\n")
    said = "Nothing found in 2 files, 1 of them not checked in full.\n"
    assert shell.check().stdout == said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chek"], "no command `chek`, did you mean `check`?"),
        (["check", "--selct", "XY"], "no option `--selct`, did you mean `--select`?"),
        (["fix", "--add-ignore"], "no option `--add-ignore` here, it is one of `torchlint check`"),
        (["check", "--apply"], "no option `--apply` here, it is one of `torchlint fix`"),
        (["explain", "TL001", "--colr"], "no option `--colr`, did you mean `--color`?"),
        (["check", "--no-unsafe-fixs"], "did you mean `--no-unsafe-fixes`?"),
        (["check", "--output-format", "jsn"], "`jsn` is none of full"),
        (["check", "--output-format", "jsn"], "did you mean `json`?"),
        (["check", "--target-device", "cdua"], "did you mean `cuda`?"),
        (["fix", "--color", "alway"], "did you mean `always`?"),
        (["rules", "--output-format", "jso"], "did you mean `json`?"),
        (["audit", "a.py", "--output-format", "markdwn"], "did you mean `markdown`?"),
        (["check", "--select", "XY20x"], "--select: unknown code or name `XY20x`"),
        (["check", "--select", "slow-cal"], "`slow-cal`, did you mean `slow-call`?"),
        (["explain", "XY210"], "unknown rule `XY210`: the nearest code is XY201"),
        (["check", "--jobs", "0"], "invalid value for '--jobs' / '-j'"),
        (["check", "--target-torch", "new"], "`new` is not a version of torch such as `2.4`"),
        (["check", "--per-file-ignores", "a.py"], "`a.py` is not a `pattern:code`"),
        (["check", "--config", "gone.toml"], "file 'gone.toml' does not exist."),
        (["check", "-", "a.py"], "`-` (standard input) cannot be combined with other paths"),
        (["check", "--stdin-filename", "a.py"], "`--stdin-filename` needs `-`"),
        (["check", "-", "--add-ignore"], "`--add-ignore` writes to files"),
        (["check", ""], "the path is empty"),
        (["check", "--cache-dir", ""], "the path is empty"),
        (["check", "--select", ""], "it is empty; write `ALL` for every rule"),
        (["check", "--statistics", "--output-format", "sarif"], "is not supported by `sarif`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_call_is_2_and_one_line(shell: Shell, arguments: list[str], message: str) -> None:
    done = shell.run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert message.lower() in done.stderr.lower()
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "--jobs", "many"], "'many' is not a whole number."),
        (["check", "--file-timeout", "long"], "'long' is not a number."),
        (["check", "--sort", "size"], "`size` is none of file, impact, cost, code\n"),
        (["audit", "gone"], "error: path 'gone' does not exist."),
        (["config", "gone"], "error: path 'gone' does not exist."),
        (["fix", "gone.py"], "error: gone.py does not exist\n"),
        (["fix", "--apply", "gone.py"], "error: gone.py does not exist\n"),
        (["check", "--fix", "gone.py"], "error: gone.py does not exist\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_is_one_plain_sentence(shell: Shell, arguments: list[str], message: str) -> None:
    done = shell.run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_variable_with_a_wrong_value_is_named_as_it_is_written(shell: Shell) -> None:
    done = shell.run("check", environment={"TORCHLINT_SORT": "size"})
    assert done.stderr.startswith("error: TORCHLINT_SORT: must be one of file, ")


def test_a_wrong_configuration_names_file_line_and_nearest_key(shell: Shell) -> None:
    shell.write("a.py", TRAIN)
    shell.write("torchlint.toml", "# mine\nselekt = ['XY']\n")
    done = shell.run("check")
    assert done.returncode == 2
    assert "torchlint.toml:2" in done.stderr
    assert "`select`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["check", "config"])
def test_an_unknown_code_in_a_configuration_is_refused_even_without_files(
    shell: Shell, command: str
) -> None:
    shell.write("src/torchlint.toml", 'select = ["XY2O1"]\n')
    done = shell.run(command, "src")
    assert (done.returncode, done.stdout) == (2, "")
    assert "torchlint.toml:1: unknown code or name `XY2O1`, did you mean `XY201`?" in done.stderr


def test_a_reader_that_goes_away_is_quiet(shell: Shell) -> None:
    shell.write("a.py", "slow()\n" * 3000)
    process = subprocess.Popen(
        [sys.executable, "-m", "torchlint", "check", "--select", "XY", "--no-cache"],
        cwd=shell.folder,
        env=shell.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with stopped(process):
        process.stdout.read(100)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_an_interrupt_is_130_and_quiet(shell: Shell) -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
            "import torchlint.cli.check; from torchlint.cli import main;"
            "print('ready', flush=True); main(['check', '-'])",
        ],
        cwd=shell.folder,
        env=shell.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    with stopped(process):
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")


def _sh(shell: Shell, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which `torchlint` is the program."""
    program = f'torchlint() {{ "{sys.executable}" -P -m torchlint "$@"; }}\n'
    return subprocess.run(
        ["sh", "-c", program + line],
        cwd=shell.folder,
        env=shell.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_output_that_cannot_be_written_is_2_and_one_line(shell: Shell) -> None:
    shell.write("train.py", TRAIN)
    for command in ("check --select XY", "rules", "--help"):
        done = _sh(shell, f"torchlint {command} > /dev/full")
        assert done.returncode == 2, command
        assert done.stderr == "error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_an_empty_one(shell: Shell, closed: str) -> None:
    shell.write("train.py", TRAIN)
    done = _sh(shell, f"torchlint check --select XY train.py {closed}")
    assert done.returncode == 1
    assert done.stderr == ""
    assert ("train.py:3:" in done.stdout) == (">&-" not in closed.split())
    assert shell.read("train.py") == TRAIN


def test_a_current_folder_that_is_gone_is_2_and_one_line(shell: Shell) -> None:
    done = _sh(shell, 'mkdir below && cd below && rmdir "$PWD" && torchlint check .')
    assert done.returncode == 2
    assert done.stderr == "error: the current folder no longer exists: change to one that does\n"
