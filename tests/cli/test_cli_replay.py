"""A command that would print what it printed before prints that."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

import pytest
from cli_shell import TRAIN, Shell

MARK: Final = "kept text"
FOLDER: Final = ".torchlint_cache"


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Return one folder after the other that nobody has touched for a while, each its own."""
    top = tmp_path_factory.mktemp("printed")
    shells = [Shell(top / str(number) / "project") for number in range(30)]
    for shell in shells:
        shell.write("train.py", TRAIN)
        shell.write("data/helper.py", "import torch\n\nheavy()\n")
        (shell.folder / FOLDER).mkdir()
    _settle()
    return iter(shells)


@pytest.fixture
def settled(left_alone: Iterator[Shell]) -> Shell:
    """Return such a folder with the record of a run over it."""
    shell = next(left_alone)
    assert _check(shell).returncode == 1
    # The first runs of all may compile the rules, which touches their folder.
    for _ in "123":
        if not list(shell.folder.glob(f"{FOLDER}/*.printed")):
            _settle()
            _check(shell)
    return shell


def _settle() -> None:
    """Wait until files that were just touched count as left alone."""
    time.sleep(2.1)


def _check(shell: Shell, *arguments: str, **environment: str) -> CompletedProcess[str]:
    return shell.run("check", "--select", "XY", *arguments, environment=environment)


def _record(shell: Shell) -> Path:
    (file,) = shell.folder.glob(f"{FOLDER}/*.printed")
    return file


def _fields(data: bytes) -> list[bytes]:
    head, _, body = data.partition(b"\n")
    fields = []
    for length in map(int, head.split()[1:]):
        fields.append(body[:length])
        body = body[length:]
    return fields


def _joined(fields: Sequence[bytes]) -> bytes:
    body = b"".join(fields)
    head = " ".join(map(str, (zlib.crc32(body), *map(len, fields))))
    return head.encode() + b"\n" + body


def _mark(shell: Shell) -> None:
    """Make what was kept another text, by which it is told from one that is made anew."""
    *rest, _ = _fields(_record(shell).read_bytes())
    _record(shell).write_bytes(_joined([*rest, MARK.encode()]))


def test_the_same_is_printed_again(settled: Shell) -> None:
    first = _check(settled, "--no-cache")
    second = _check(settled)
    assert (second.returncode, second.stdout, second.stderr) == (1, first.stdout, first.stderr)
    assert "train.py:3:" in second.stdout
    _mark(settled)
    third = _check(settled)
    assert (third.returncode, third.stdout, third.stderr) == (1, MARK, "")


def test_it_is_printed_again_without_click_and_without_the_engine(settled: Shell) -> None:
    again = _check(settled, PYTHONPROFILEIMPORTTIME="1")
    modules = {line.split("|")[-1].strip() for line in again.stderr.splitlines()}
    assert "torchlint.cli.replay" in modules
    assert not {"click", "json", "torchlint.cli.program", "torchlint.engine"} & modules


OTHERS: Final = (
    ("--output-format", "concise"),
    ("--statistics",),
    ("--quiet",),
    ("--verbose",),
    ("--unsafe-fixes",),
    ("--exit-zero",),
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
    assert "\x1b[" in _check(settled, FORCE_COLOR="1").stdout
    assert MARK not in settled.run("check", "--select", "XY", "..").stdout
    assert MARK not in Shell(settled.folder / "data").run("check", "--select", "XY").stdout


def test_a_run_that_does_more_is_not_kept(settled: Shell) -> None:
    kept = _record(settled).read_bytes()
    for more in (("--verbose",), ("--output-file", "report.txt"), ("--add-ignore",), ("-",)):
        _settle()
        _check(settled, *more)
        assert _record(settled).read_bytes() == kept, more


def test_a_changed_file_is_looked_at_whatever_its_times_say(settled: Shell) -> None:
    _mark(settled)
    state = (settled.folder / "train.py").stat()
    settled.write("train.py", TRAIN.replace("slow()", "fast()"))
    os.utime(settled.folder / "train.py", ns=(state.st_atime_ns, state.st_mtime_ns))
    again = _check(settled)
    assert MARK not in again.stdout
    assert "train.py:3:" not in again.stdout


CHANGES: Final = {
    "a configuration beside": ("torchlint.toml", 'ignore = ["XY201"]\n'),
    "a configuration above": ("../torchlint.toml", 'ignore = ["XY201"]\n'),
    "a configuration below": ("data/torchlint.toml", 'ignore = ["XY201"]\n'),
    "a project above": ("../pyproject.toml", '[project]\ndependencies = ["torch>=2.4"]\n'),
    "patterns of git": (".gitignore", "train.py\n"),
    "patterns of git above": ("../.gitignore", "train.py\n"),
    "a repository of git": (".git/HEAD", "ref: refs/heads/main\n"),
    "a repository above": ("../.git", "gitdir: elsewhere\n"),
    "one more script": ("data/more.py", TRAIN),
}


@pytest.mark.parametrize(("name", "text"), CHANGES.values(), ids=CHANGES)
def test_whatever_comes_is_looked_at(settled: Shell, name: str, text: str) -> None:
    _mark(settled)
    settled.write(name, text)
    assert MARK not in _check(settled).stdout


def test_a_configuration_that_is_changed_is_looked_at(settled: Shell) -> None:
    settled.write("data/torchlint.toml", "")
    settled.write("named.toml", "")
    _settle()
    for arguments, file in (
        ((), "data/torchlint.toml"),
        (("--config", "named.toml"), "named.toml"),
    ):
        before = _check(settled, *arguments)
        settled.write(file, 'ignore = ["XY"]\n')
        after = _check(settled, *arguments)
        assert len(after.stdout) < len(before.stdout), file


def test_what_is_gone_is_gone(settled: Shell) -> None:
    _mark(settled)
    (settled.folder / "data" / "helper.py").unlink()
    assert MARK not in _check(settled).stdout


def test_a_folder_that_the_configuration_names_is_looked_into(settled: Shell) -> None:
    settled.write("torchlint.toml", 'cache-dir = "kept"\n')
    (settled.folder / "kept").mkdir()
    _settle()
    first = _check(settled)
    (record,) = settled.folder.glob("kept/*.printed")
    *rest, text = _fields(record.read_bytes())
    assert text.decode() == first.stdout
    record.write_bytes(_joined([*rest, MARK.encode()]))
    assert _check(settled).stdout == MARK


def test_a_wrong_configuration_further_down_is_refused(settled: Shell) -> None:
    settled.write("below/more.py", TRAIN)
    settled.write("below/torchlint.toml", "select = 3\n")
    done = _check(settled)
    assert done.returncode == 2
    assert "torchlint.toml" in done.stderr
    assert "internal error" not in done.stderr


def test_what_was_written_a_moment_ago_is_not_trusted_to_stay(shell: Shell) -> None:
    shell.write("train.py", TRAIN)
    _check(shell)
    assert (shell.folder / FOLDER).is_dir()
    assert not list(shell.folder.glob(f"{FOLDER}/*.printed"))


def test_a_run_that_failed_is_done_again(settled: Shell) -> None:
    failed = _check(settled, ".", "nowhere.py")
    again = _check(settled, ".", "nowhere.py")
    assert failed.returncode == again.returncode == 2
    assert failed.stderr == again.stderr != ""


def test_the_last_few_are_kept(settled: Shell) -> None:
    for number in range(9):
        _check(settled, "--extend-exclude", f"nothing{number}")
    _check(settled, "data")
    kept = [_fields(file.read_bytes()) for file in settled.folder.glob(f"{FOLDER}/*.printed")]
    assert len(kept) == 8
    assert any(b"'data'" in fields[0] for fields in kept)
    assert not any(b"'nothing1'" in fields[0] for fields in kept)


def test_a_damaged_record_is_none(settled: Shell) -> None:
    before = _check(settled)
    whole = _record(settled).read_bytes()
    fields = _fields(whole)
    damaged = [b"", b"\0", b"1 2 3", whole[:-1], whole + b" ", whole.replace(b"train", b"trial")]
    damaged += [_joined([*fields[:at], b"x", *fields[at + 1 :]]) for at in range(len(fields) - 1)]
    damaged.append(_joined([*fields[:-1], b"\xff"]))
    for data in damaged:
        _record(settled).write_bytes(data)
        after = _check(settled)
        assert (after.returncode, after.stdout) == (before.returncode, before.stdout), data
        assert after.stderr == before.stderr


def test_a_record_that_somebody_planted_is_not_believed(settled: Shell) -> None:
    key, code, read, _, _, _ = _fields(_record(settled).read_bytes())
    ours, *others = read.split(b"\0")
    states = b"\0" * 40
    for names, state in (
        (b"", b""),
        (ours, states),
        (others[0], b""),
        (b"nowhere", states),
        (ours + b"\0nowhere", 2 * states),
    ):
        planted = _joined([key, code, names, b"", state, MARK.encode()])
        _record(settled).write_bytes(planted)
        assert MARK not in _check(settled).stdout, names


def test_a_pipe_in_the_place_of_a_record_holds_nothing_up(settled: Shell) -> None:
    record = _record(settled)
    record.unlink()
    os.mkfifo(record)
    assert "train.py:3:" in _check(settled).stdout
