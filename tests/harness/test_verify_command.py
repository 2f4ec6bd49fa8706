"""The command `verify` as it is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from cli_shell import Shell
from cli_terminal import Terminal
from harness.scripts import PLAIN, write

CALL = "from torchlint.cli import main; main()"


def verify(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CALL, "verify", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("raise ValueError('no data')\n", "train.py:1: the original script fails: ValueError: no"),
        ("x = input()\n", "train.py:1: the script reads standard input"),
        (
            "import sys\nrate = float(sys.stdin.readline())\n",
            "train.py:2: the script reads standard input, which is empty here",
        ),
        (
            "import subprocess as s\ns.run(['nothing-of-that-name'], stdin=s.PIPE)\n",
            "train.py:2: the original script fails: FileNotFoundError",
        ),
        ("print('done')\n", "train.py: the script cannot be measured: it never imports torch"),
    ],
)
def test_a_script_that_cannot_be_measured_is_one_line_and_exit_2(
    tmp_path: Path, text: str, line: str
) -> None:
    write(tmp_path, text)
    done = verify(tmp_path, "train.py", "--isolated")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {line}")
    assert done.stderr.count("\n") == 1


def test_a_script_that_fails_at_a_line_with_a_fix_is_told_which(tmp_path: Path) -> None:
    text = dedent(PLAIN).replace(
        "    optimizer.step()\n", "    optimizer.step()\n    loss.data[0]\n"
    )
    write(tmp_path, text)
    done = verify(tmp_path, "train.py", "--isolated")
    assert done.returncode == 2
    *_, error, offer = done.stderr.splitlines()
    assert error.startswith("error: train.py:13: the original script fails: IndexError: ")
    assert offer == "TL408 can mend this line: `torchlint fix --apply train.py`"


def test_arguments_after_two_dashes_are_the_scripts_own(tmp_path: Path) -> None:
    write(tmp_path, "import sys\nraise ValueError(sys.argv[1:])\n")
    done = verify(tmp_path, "train.py", "--isolated", "--", "--steps", "many", "x")
    assert "ValueError: ['--steps', 'many', 'x']" in done.stderr


def test_without_torch_one_line_says_how_to_install_it(tmp_path: Path) -> None:
    write(tmp_path, "print()\n")
    without = "import importlib.util as u; find = u.find_spec; " + (
        "u.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest); "
    )
    done = subprocess.run(
        [sys.executable, "-c", without + CALL, "verify", "train.py", "--isolated"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 2
    assert "pip install 'torchlint[verify]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_device_that_there_is_not_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "print()\n")
    done = verify(tmp_path, "train.py", "--device", "tpu")
    assert done.returncode == 2
    assert "no device `tpu`: take auto, cpu, cuda, cuda:N, mps or xpu" in done.stderr


def test_in_a_terminal_a_script_finds_one_of_its_width_and_nothing_typed(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        import os
        import torch
        width = int(os.popen("stty size").read().split()[1])
        torch.autograd.set_detect_anomaly(True)
        try:
            input()
        except EOFError:
            print(width)
        if width != 91:
            raise ValueError(width)
        """,
    )
    call = ("verify", "train.py", "--isolated", "--select", "TL801", "--rounds", "2")
    with Terminal(Shell(tmp_path), *call, columns=91) as terminal:
        code, _ = terminal.end()
    assert "fixed-script-fails" not in terminal.shown
    assert "prints the same output (no losses to compare)" in terminal.shown
    assert code in (0, 1)
