"""A run that would print what an earlier one printed prints that."""

from __future__ import annotations

import json
import os
import time
from importlib.util import source_hash
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import pytest
from cli_shell import TRAIN, Shell

from torchlint.engine.files import WORTH_REMEMBERING

MARK = "kept text"


@pytest.fixture
def settled(shell: Shell) -> Shell:
    """Give a folder whose files were written long enough ago, after a first run over them."""
    _write(shell)
    time.sleep(2.1)
    assert _check(shell).returncode == 1
    return shell


def _write(shell: Shell) -> None:
    """Write as many files as are worth it."""
    shell.write("train.py", TRAIN)
    for number in range(WORTH_REMEMBERING):
        shell.write(f"helper{number}.py", "import torch\n\nheavy()\n")


def _check(shell: Shell, *arguments: str) -> CompletedProcess[str]:
    return shell.run("check", "--select", "XY", *arguments)


def _kept(shell: Shell) -> Path:
    (file,) = shell.folder.glob(".torchlint_cache/*-printed.json")
    return file


def _mark(shell: Shell) -> None:
    """Make what was kept another text, by which it is told from one that is made anew."""
    entries = json.loads(_kept(shell).read_text()).items()
    check = source_hash(MARK.encode()).hex()
    kept = {key: [MARK, found, check] for key, (_, found, _) in entries}
    _kept(shell).write_text(json.dumps(kept))


def test_the_same_is_printed_again(settled: Shell) -> None:
    first = _check(settled, "--no-cache")
    second = _check(settled)
    assert (second.returncode, second.stdout, second.stderr) == (1, first.stdout, first.stderr)
    assert "train.py:3:" in second.stdout
    _mark(settled)
    third = _check(settled)
    assert (third.returncode, third.stdout, third.stderr) == (1, MARK, "")
    assert _check(settled, "--exit-zero").returncode == 0


OTHERS: Final = (
    ("--output-format", "concise"),
    ("--statistics",),
    ("--quiet",),
    ("--verbose",),
    ("--unsafe-fixes",),
    ("--color", "always"),
    ("--ignore", "XY2"),
    ("train.py",),
    ("--no-cache",),
    ("--baseline", "known.json", "--write-baseline"),
    ("--baseline", "known.json"),
)


def test_a_run_that_wants_something_else_gets_that(settled: Shell) -> None:
    _mark(settled)
    for arguments in OTHERS:
        assert MARK not in _check(settled, *arguments).stdout, arguments
    assert _check(settled).stdout == MARK


def test_whatever_changes_is_looked_at(settled: Shell) -> None:
    _mark(settled)
    state = (settled.folder / "train.py").stat()
    settled.write("train.py", TRAIN.replace("slow()", "fast()"))
    os.utime(settled.folder / "train.py", ns=(state.st_atime_ns, state.st_mtime_ns))
    again = _check(settled)
    assert MARK not in again.stdout
    assert "train.py:3:" not in again.stdout


def test_configuration_and_new_files_are_looked_at(settled: Shell) -> None:
    _mark(settled)
    settled.write("torchlint.toml", 'ignore = ["XY201"]\n')
    configured = _check(settled).stdout
    (settled.folder / "torchlint.toml").unlink()
    assert _check(settled).stdout == MARK
    settled.write("more.py", TRAIN)
    more = _check(settled).stdout
    assert MARK not in configured
    assert "more.py:3:" in more


def test_a_wrong_configuration_further_down_is_refused(settled: Shell) -> None:
    settled.write("below/more.py", TRAIN)
    settled.write("below/torchlint.toml", "select = 3\n")
    done = _check(settled)
    assert done.returncode == 2
    assert "torchlint.toml" in done.stderr
    assert "internal error" not in done.stderr


def test_what_was_written_a_moment_ago_is_not_trusted_to_stay(shell: Shell) -> None:
    _write(shell)
    _check(shell)
    assert not list(shell.folder.glob(".torchlint_cache/*-printed.json"))


def test_a_run_that_failed_is_done_again(settled: Shell) -> None:
    failed = _check(settled, ".", "nowhere.py")
    again = _check(settled, ".", "nowhere.py")
    assert failed.returncode == again.returncode == 2
    assert failed.stderr == again.stderr != ""


def test_a_damaged_memory_is_none(settled: Shell) -> None:
    before = _check(settled)
    (key,) = json.loads(_kept(settled).read_text())
    for text in (
        "",
        "[1]",
        '{"a": 1}',
        "\0",
        f'{{"{key}": [1, true]}}',
        f'{{"{key}": ["", true, "00"]}}',
    ):
        _kept(settled).write_text(text)
        after = _check(settled)
        assert (after.returncode, after.stdout) == (before.returncode, before.stdout), text
        assert after.stderr == before.stderr
