"""Whatever ends a `fix --apply`, each file is wholly as it was or wholly as it should be."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import stopped

COMMAND = (
    sys.executable,
    "-m",
    "torchlint",
    "fix",
    "--apply",
    "--isolated",
    "--no-cache",
    "--quiet",
    "--target-torch=2.9",
)
BEFORE = (
    b"\xef\xbb\xbfimport torch\r\n"
    b"model = torch.nn.Linear(2048, 2048)\r\n"
    b"opt = torch.optim.Adam(model.parameters())  # caf\xc3\xa9\r\n"
    b"for x in torch.randn(9, 4, 2):\r\n"
    b"    model(x).sum().backward()\r\n"
    b"    opt.step()\r\n" + b"# a line that makes the file longer\r\n" * 400
)


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return what a run that nobody disturbs makes of the file."""
    file = tmp_path_factory.mktemp("calm") / "train.py"
    file.write_bytes(BEFORE)
    subprocess.run([*COMMAND, str(file)], check=True, capture_output=True)
    fixed = file.read_bytes()
    assert fixed != BEFORE
    assert b"fused=True" in fixed
    return fixed


def _fill(folder: Path) -> list[Path]:
    files = [folder / f"train{number}.py" for number in range(24)]
    for file in files:
        file.write_bytes(BEFORE)
    return files


def test_killed_at_any_moment(tmp_path: Path, after: bytes) -> None:
    seen: set[bytes] = set()
    draw = random.Random(0)
    for _ in range(6):
        files = _fill(tmp_path)
        running = subprocess.Popen(
            [*COMMAND, str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with stopped(running):
            while running.poll() is None and all(file.read_bytes() == BEFORE for file in files):
                time.sleep(0.002)
            time.sleep(draw.random() * 0.01)
        found = {file.read_bytes() for file in files}
        assert found <= {BEFORE, after}
        seen |= found
    assert after in seen


def test_two_at_once(tmp_path: Path, after: bytes) -> None:
    files = _fill(tmp_path)
    both = [
        subprocess.Popen([*COMMAND, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    for running in both:
        with stopped(running):
            out, err = running.communicate()
        assert b"Traceback" not in out + err
        assert running.returncode in (0, 2)
    assert {file.read_bytes() for file in files} == {after}
    assert sorted(tmp_path.iterdir()) == sorted(files)


def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(BEFORE)

    def little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(
        [*COMMAND, str(file)],
        preexec_fn=little_room,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert str(file) in line
    assert file.read_bytes() == BEFORE
    assert list(tmp_path.iterdir()) == [file]


_DROP_FROM_BOUNDING_SET = 24


def _without_privileges() -> Callable[[], None] | None:
    """Return what takes from root, in a new process, the right to do what others may not."""
    if os.geteuid() != 0:
        return None
    prctl = ctypes.CDLL(None).prctl

    def drop() -> None:
        for capability in range(64):
            prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)

    return drop


def _fix_without_privileges(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "."],
        cwd=folder,
        preexec_fn=_without_privileges(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="privileges are dropped as Linux has them")
@pytest.mark.parametrize("protected", ["script", "folder"])
def test_what_is_read_only_stays(tmp_path: Path, after: bytes, protected: str) -> None:
    closed, file = tmp_path / "closed", tmp_path / "open.py"
    closed.mkdir()
    locked = closed / "train.py"
    for each in (file, locked):
        each.write_bytes(BEFORE)
    (locked if protected == "script" else closed).chmod(0o555)
    done = _fix_without_privileges(tmp_path)
    closed.chmod(0o755)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == "error: closed/train.py was not written: Permission denied"
    assert locked.read_bytes() == BEFORE
    assert file.read_bytes() == after
    assert list(closed.iterdir()) == [locked]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to somebody else")
def test_the_owner_stays(tmp_path: Path, after: bytes) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(BEFORE)
    os.chown(file, 4242, 4343)
    file.chmod(0o664)
    subprocess.run([*COMMAND, "."], cwd=tmp_path, check=True, capture_output=True)
    assert file.read_bytes() == after
    status = file.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (4242, 4343, 0o664)


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root gives a file to somebody else"
)
def test_a_file_that_would_lose_its_owner_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(BEFORE)
    file.chmod(0o666)
    os.chown(file, 4242, 4343)
    done = _fix_without_privileges(tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == (
        "error: train.py was not written: it belongs to user 4242 and group 4343, "
        "and would no longer: run torchlint as that user"
    )
    assert file.read_bytes() == BEFORE
    assert list(tmp_path.iterdir()) == [file]
