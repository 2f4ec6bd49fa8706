"""`check` and `fix` judge a file with the modules of its project, and show which."""

from __future__ import annotations

import time

import pytest
from cli_shell import Shell
from small_program import DATA, FILES, TRAIN

CHOSEN = ("--select", "TL203,TL204", "--output-format", "concise")


@pytest.fixture
def program(quick: Shell) -> Shell:
    """Return a folder with the program."""
    for name, text in FILES.items():
        quick.write(name, text)
    return quick


def _places(printed: str) -> list[str]:
    found = [line for line in printed.splitlines() if ".py:" in line and ": TL20" in line]
    return [":".join(line.split(":")[:2]) for line in found]


def test_check_looks_at_other_modules(program: Shell) -> None:
    done = program.run("check", *CHOSEN)
    assert _places(done.stdout) == ["helpers.py:5", "train.py:8"]
    assert "  note: train.py:7: the loop that runs this in every step\n" in done.stdout


def test_each_file_can_be_judged_alone(program: Shell) -> None:
    assert program.run("check", "--no-program", *CHOSEN).returncode == 0
    program.write("torchlint.toml", "program = false\n")
    assert program.run("check", *CHOSEN).returncode == 0
    assert program.run("check", "--program", *CHOSEN).returncode == 1


def test_the_links_of_each_file_are_shown(program: Shell) -> None:
    done = program.run("check", "--show-links")
    assert "train.py: data.py:13 make_loader" in done.stdout.splitlines()
    assert "train.py: helpers.py:4 noisy" in done.stdout.splitlines()
    assert program.run("check", "--show-links", "--no-program").stdout == ""
    assert done.returncode == 0


def test_standard_input_is_judged_as_its_file_in_a_full_run(program: Shell) -> None:
    whole = program.run("check", *CHOSEN).stdout.splitlines()
    program.write("train.py", "import torch\n")
    given = program.run(
        "check", "-", "--stdin-filename", "train.py", *CHOSEN, text=TRAIN
    ).stdout.splitlines()
    assert given[:1] == [line for line in whole if line.startswith("train.py")]


def test_standard_input_without_a_path_is_judged_alone(program: Shell) -> None:
    assert program.run("check", "-", *CHOSEN, text=TRAIN).returncode == 0


def test_fixes_rest_on_other_modules(program: Shell) -> None:
    assert program.run("fix", "--apply", *CHOSEN).returncode == 0
    assert program.read("train.py").count("non_blocking=True") == 2
    assert program.read("data.py") == DATA


def test_a_run_over_one_file_is_not_replayed_after_a_change_elsewhere(shell: Shell) -> None:
    for name, text in FILES.items():
        shell.write(name, text)
    (shell.folder / ".torchlint_cache").mkdir()
    time.sleep(2.1)
    for _ in range(3):
        done = shell.run("check", "train.py", *CHOSEN)
        assert _places(done.stdout) == ["train.py:8"]
        time.sleep(2.1 if not list(shell.folder.glob(".torchlint_cache/*.printed")) else 0)
    assert list(shell.folder.glob(".torchlint_cache/*.printed"))
    shell.write("data.py", DATA.replace("pin_memory=True", "pin_memory=False"))
    assert _places(shell.run("check", "train.py", *CHOSEN).stdout) == []


def test_an_audit_finds_what_another_module_does(program: Shell) -> None:
    table = program.run("audit", "train.py").stdout
    assert "data.py:14" in table
    assert "data.py:14" not in program.run("audit", "--no-program", "train.py").stdout
