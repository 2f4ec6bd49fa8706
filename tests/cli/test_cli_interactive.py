from __future__ import annotations

import pytest
from cli_shell import Shell
from cli_terminal import Terminal

TEXT = "slow(1)\nslow(1)\nslow(2)\nheavy()\nslow(3)\n"
PROMPT = "[q]uit, [?]: "
FIX = ("fix", "--select", "XY", "--no-cache", "--interactive", "--color", "never")


def fixed(shell: Shell, *answers: str, text: str = TEXT) -> str:
    """Return what answers make of a script."""
    shell.write("a.py", text)
    with Terminal(shell, *FIX, "-q") as terminal:
        for answer in answers:
            terminal.wait_for(PROMPT)
            terminal.type(answer)
        terminal.end()
        assert terminal.shown.count(PROMPT) == len(answers)
    return shell.read("a.py")


@pytest.mark.parametrize(
    ("answers", "calls"),
    [
        (("y\n", "y\n", "y\n", "y\n"), "ffff"),
        (("n\n", "n\n", "n\n", "n\n"), "ssss"),
        (("y\n", "n\n", "y\n", "no\n"), "fsfs"),
        (("n\n", "Yes\n", "n\n", "y\n"), "sfsf"),
        (("n\n", "a\n"), "sfff"),
        (("n\n", "f\n"), "sfff"),
        (("y\n", "s\n"), "fsss"),
        (("y\n", "?\n", "q\n"), "fsss"),
        (("y\n", "q\n"), "fsss"),
        (("y\n", "\x04"), "fsss"),
        (("y\n", "\n", "perhaps\n", "n\n", "q\n"), "fsss"),
    ],
    ids=[
        "yes",
        "no",
        "some",
        "alike lines",
        "all",
        "file",
        "skip",
        "help",
        "quit",
        "end of input",
        "no answer",
    ],
)
def test_each_fix_is_asked_for_once(shell: Shell, answers: tuple[str, ...], calls: str) -> None:
    lines = fixed(shell, *answers).splitlines()
    assert lines.pop(3) == "heavy()"
    assert "".join(line[0] for line in lines) == calls


def test_the_diff_of_each_fix_is_shown_and_what_is_left_is_said(shell: Shell) -> None:
    shell.write("a.py", "slow()\nrisky()\n")
    with Terminal(shell, *FIX, "--unsafe-fixes", "--output-format", "concise") as terminal:
        shown = terminal.wait_for(PROMPT).replace("\r\n", "\n")
        assert shown == (
            "\na.py:1:1: XY201 [slow-call] high: `slow` takes its time: call `fast`\n"
            "help: Call `fast` (exact)\n"
            "1 - slow()\n1 + fast()\n2   risky()\n"
            "1 of 2. Make this fix? [y]es, [n]o, [a]ll XY201, [s]kip XY201, rest of [f]ile, "
            + PROMPT
        )
        terminal.type("y\n")
        shown = terminal.wait_for(PROMPT).replace("\r\n", "\n")
        assert "2 - risky()\n2 + daring()\n" in shown
        assert shell.read("a.py") == "slow()\nrisky()\n"
        terminal.type("n\n")
        code, rest = terminal.end()
    assert code == 1
    assert "Made 1 fix in 1 file." in rest
    assert "a.py:2:1: XY301 [risky-call]" in rest
    assert shell.read("a.py") == "fast()\nrisky()\n"


def test_quitting_says_what_was_done_in_two_lines(shell: Shell) -> None:
    shell.write("a.py", "slow(1)\nslow(2)\nheavy()\n")
    with Terminal(shell, *FIX) as terminal:
        for answer in ("y\n", "q\n"):
            terminal.wait_for(PROMPT)
            terminal.type(answer)
        code, rest = terminal.end()
    assert code == 1
    assert rest.replace("\r\n", "\n").endswith(
        "Made 1 fix in 1 file.\n2 findings left: `torchlint check` lists them.\n"
    )


def test_an_answer_about_a_rule_leaves_other_rules_to_be_asked_for(shell: Shell) -> None:
    shell.write("a.py", "slow()\nrisky()\nslow()\n")
    with Terminal(shell, *FIX, "--unsafe-fixes", "-q") as terminal:
        for answer in ("a\n", "s\n"):
            terminal.wait_for(PROMPT)
            terminal.type(answer)
        terminal.end()
    assert shell.read("a.py") == "fast()\nrisky()\nfast()\n"


def test_each_file_is_written_before_the_next_is_asked_for(shell: Shell) -> None:
    for name in ("a.py", "b.py"):
        shell.write(name, "slow()\n")
    with Terminal(shell, *FIX) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("y\n")
        terminal.wait_for(PROMPT)
        assert shell.read("a.py") == "fast()\n"
        terminal.interrupt()
        code, rest = terminal.end()
    assert (code, rest) == (130, "")
    assert shell.read("b.py") == "slow()\n"


def test_without_a_terminal_nobody_is_asked(shell: Shell) -> None:
    shell.write("a.py", "slow()\n")
    done = shell.fix("--interactive", text="y\n")
    assert done.returncode == 2
    assert done.stderr == "error: `--interactive` needs a terminal as standard input\n"
    done = shell.fix("--interactive", "-", text="slow()\n")
    assert done.stderr.startswith("error: `--interactive` writes to files")
    done = shell.fix("--interactive", "--watch")
    assert done.stderr == "error: `--watch` and `--interactive` cannot go together\n"
    assert shell.read("a.py") == "slow()\n"
