"""Whatever ends a `fix --apply`, each file is wholly as it was or wholly as it should be."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = (
    sys.executable,
    "-m",
    "torchlint",
    "fix",
    "--apply",
    "--isolated",
    "--no-cache",
    "--quiet",
)
BEFORE = (
    b"\xef\xbb\xbfimport torch\r\n"
    b"model = torch.nn.Linear(2, 2)\r\n"
    b"opt = torch.optim.Adam(model.parameters())  # caf\xc3\xa9\r\n"
    b"for x in torch.randn(9, 4, 2):\r\n"
    b"    model(x).sum().backward()\r\n"
    b"    opt.step()\r\n" + b"# a line that makes the file longer\r\n" * 400
)


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Give what a run that nobody disturbs makes of the file."""
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
    for _ in range(10):
        files = _fill(tmp_path)
        running = subprocess.Popen(
            [*COMMAND, str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while running.poll() is None and all(file.read_bytes() == BEFORE for file in files):
            time.sleep(0.002)
        time.sleep(draw.random() * 0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()
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
