from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_shell import TRAIN, Shell
from processes import on_terminal

from torchlint.config import FORMATS


def test_standard_input_is_checked_under_the_name_it_is_given(quick: Shell) -> None:
    done = quick.check("-", "--output-format", "concise", text=TRAIN)
    assert done.stdout.startswith("-:3:1: XY201")
    done = quick.check(
        "-", "--output-format", "concise", "--stdin-filename", "src/new.py", text=TRAIN
    )
    assert done.stdout.startswith("src/new.py:3:1: XY201")


def test_fix_of_standard_input_prints_a_diff_or_the_fixed_text(quick: Shell) -> None:
    done = quick.fix("-", text=TRAIN)
    assert done.stdout.startswith("--- a/-\n+++ b/-\n@@ -1,6 +1,6 @@\n")
    assert done.returncode == 1
    done = quick.fix("-", "--apply", text=TRAIN)
    assert done.stdout == TRAIN.replace("slow", "fast")
    assert done.returncode == 0


def test_text_that_needs_no_fix_passes_through_byte_for_byte(quick: Shell) -> None:
    data = "# -*- coding: latin-1 -*-\r\nname = 'é'\r\nheavy()".encode("latin-1")
    assert quick.run_bytes("fix", "-", "--apply", "--select", "XY", data=data).stdout == data


@pytest.mark.parametrize(
    "data",
    [
        TRAIN.encode(),
        TRAIN.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbfslow()\nslow()",
        "# coding: latin-1\nname = 'é'\nslow()\n\x0cother()\n".encode("latin-1"),
        b"slow()",
    ],
    ids=["plain", "crlf", "bom", "latin-1", "no newline at the end"],
)
def test_the_diff_is_one_that_git_applies(shell: Shell, data: bytes) -> None:
    path = shell.write("src/a b.py", data)
    done = shell.run_bytes("fix", "--select", "XY", "src", "--no-cache")
    assert done.returncode == 1
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        input=done.stdout,
        cwd=shell.folder,
        check=True,
    )
    assert path.read_bytes() == data.replace(b"slow", b"fast")


def test_standard_input_of_an_excluded_file_is_left_alone(quick: Shell) -> None:
    quick.write("build/a.py", TRAIN)
    named = ("-", "--stdin-filename", "build/a.py")
    assert quick.check(*named, text=TRAIN).returncode == 1
    assert quick.check(*named, "--force-exclude", text=TRAIN).returncode == 0
    assert quick.fix(*named, "--force-exclude", "--apply", text=TRAIN).stdout == TRAIN


def test_unparsable_text_is_one_finding_and_the_rest_goes_on(quick: Shell) -> None:
    quick.write("a.py", "import torch\nx.cuda(async=True)\n")
    quick.write("b.py", TRAIN)
    done = quick.run("check", "--select", "TL001,XY", "--output-format", "concise", "--no-cache")
    assert done.returncode == 1
    assert done.stdout.startswith("a.py:2:8: TL001 [unparsable-file]")
    assert "b.py:3:1: XY201" in done.stdout


def test_output_goes_to_a_file(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    done = quick.check("--output-file", "report.txt")
    assert done.stdout == ""
    assert quick.read("report.txt").startswith("a.py:3:1: XY201 [slow-call]")
    done = quick.check("--output-file", "no/such/report.txt")
    assert done.returncode == 2
    assert "report.txt: cannot be written: No such file or directory" in done.stderr


def test_show_files_lists_what_would_be_checked(quick: Shell) -> None:
    for name in ("a.py", "src/b.py", "build/c.py", "notes.txt"):
        quick.write(name, TRAIN)
    assert quick.check("--show-files").stdout.split() == ["a.py", "src/b.py"]
    done = quick.check("--show-files", "--extend-exclude", "src")
    assert (done.stdout.split(), done.returncode) == (["a.py"], 0)


def test_nothing_to_look_at_is_said(quick: Shell) -> None:
    done = quick.check()
    assert done.returncode == 0
    assert done.stderr == "warning: no Python files found\n"


def test_verbose_counts_and_quiet_leaves_out_the_last_line(quick: Shell) -> None:
    quick.write("a.py", TRAIN + "slow()  # noqa: XY201\n")
    done = quick.check("--verbose")
    assert done.stderr == "1 file checked, 1 finding suppressed\n"
    assert "Found 3 findings" in done.stdout
    assert "Found" not in quick.check("--quiet").stdout
    assert "Found 4 findings" in quick.check("--ignore-suppressions").stdout


def test_selection_of_rules_on_the_command_line(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    quick.write("parts/b.py", TRAIN)

    def found(*arguments: str) -> list[str]:
        done = quick.run("check", "--no-cache", "--output-format", "concise", "-q", *arguments)
        return [f"{line.partition(':')[0]} {line.split()[1]}" for line in done.stdout.splitlines()]

    assert found("--select", "XY201", "a.py") == ["a.py XY201"]
    assert found("--select", "slow-call,XY4", "a.py") == ["a.py XY201", "a.py XY401"]
    assert found("--select", "XY", "--ignore", "XY2,XY3") == ["a.py XY401", "parts/b.py XY401"]
    assert found(
        "--select", "XY201", "--extend-select", "XY4", "--per-file-ignores", "parts/*:XY4"
    ) == ["a.py XY201", "a.py XY401", "parts/b.py XY201"]


def test_a_configuration_file_is_read_unless_isolated(quick: Shell) -> None:
    quick.write("a.py", TRAIN)
    quick.write("torchlint.toml", 'select = ["XY401"]\n')
    quick.write("other.toml", 'select = ["XY201"]\nunsafe-fixes = true\n')

    def codes(*arguments: str) -> list[str]:
        done = quick.run("check", "-q", "--output-format", "concise", "--no-cache", *arguments)
        return [line.split()[1] for line in done.stdout.splitlines() if " XY" in line]

    assert codes() == ["XY401"]
    assert codes("--config", "other.toml") == ["XY201"]
    assert codes("--isolated", "--show-low") == ["XY201", "XY301", "XY401"]


def terminal_output(shell: Shell, *arguments: str, **environment: str) -> str:
    """Run torchlint on a terminal of its own and give what it wrote there."""
    command = [sys.executable, "-m", "torchlint", *arguments]
    _, written = on_terminal(command, shell.folder, shell.environment(TERM="xterm", **environment))
    return written.decode()


def test_colours_and_links_are_for_terminals(shell: Shell) -> None:
    shell.write("a.py", TRAIN)
    options = ["check", "--select", "XY", "--no-cache"]
    assert "\x1b" not in shell.run(*options).stdout
    assert "\x1b" not in shell.run(*options).stderr
    on_terminal = terminal_output(shell, *options)
    assert "\x1b[1m" in on_terminal
    assert "\x1b]8;;file://" in on_terminal
    assert "\x1b" not in terminal_output(shell, *options, NO_COLOR="1")
    assert "\x1b" not in terminal_output(shell, *options, "--color", "never")
    forced = shell.run(*options, environment={"FORCE_COLOR": "1"}).stdout
    assert "\x1b[1m" in forced
    assert "\x1b]8" not in forced
    assert "\x1b[1m" in shell.run(*options, "--color", "always").stdout


def test_the_diff_is_coloured_on_a_terminal(shell: Shell) -> None:
    shell.write("a.py", TRAIN)
    shown = terminal_output(shell, "fix", "--select", "XY", "--no-cache")
    assert "\x1b[31m-slow()\x1b[0m" in shown
    assert "\x1b[32m+fast()\x1b[0m" in shown


@pytest.mark.parametrize("form", FORMATS)
def test_a_hostile_file_cannot_steer_the_terminal(quick: Shell, form: str) -> None:
    name = "evil\x1b[2J\n\u202e\x7f.py"
    quick.write(name, "slow() # \x1b]0;owned\x07 \x9b1m \u202e\x7f\n")
    done = quick.check("--output-format", form)
    assert done.returncode == 1
    assert not set("\x1b\x07\x7f\x9b\u202e") & set(done.stdout + done.stderr)
    if form == "concise":
        assert len(done.stdout.splitlines()) == 2
    if form == "github":
        assert len(done.stdout.splitlines()) == 1
        assert "%0A" in done.stdout


def test_a_hostile_file_cannot_steer_the_terminal_by_its_diff(shell: Shell) -> None:
    shell.write("evil\x1b[2J.py", "slow() # \x1b]0;owned\x07\n")
    shown = terminal_output(shell, "fix", "--select", "XY", "--no-cache", "--color", "never")
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "+fast() # \\x1b]0;owned\\x07" in shown


def test_a_stream_of_few_characters_gets_escapes_instead_of_an_error(shell: Shell) -> None:
    shell.write("a.py", "slow()  # é 損失\n")
    done = shell.run_bytes(
        "check", "--select", "XY", "--no-cache", environment={"PYTHONIOENCODING": "latin-1"}
    )
    assert done.returncode == 1
    assert b"# \xe9 \\u640d\\u5931" in done.stdout


def test_a_name_that_is_no_text_is_shown_and_fixed(quick: Shell) -> None:
    path = Path(os.fsdecode(os.fsencode(quick.folder) + b"/caf\xe9.py"))
    path.write_text("slow()\n")
    assert quick.check("--output-format", "concise").stdout.startswith("caf\\udce9.py:1:1:")
    assert quick.check("--output-format", "sarif").returncode == 1
    assert quick.fix("--apply").returncode == 0
    assert path.read_text() == "fast()\n"
