"""Names and texts of a hostile repository cannot steer a terminal or add lines to a report."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

EVIL = "a\x1b[2Jb\nTL999 forged\r.py"
SCRIPT = """import torch
model = torch.nn.Linear(2, 2).cuda()
optimizer = torch.optim.Adam(model.parameters())
"""
TEXT_FORMATS = ("full", "concise", "grouped", "github")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / EVIL).write_text(SCRIPT + "# \x1b]8;;http://evil\x07 click\n")
    return tmp_path


def _check(project: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "torchlint", "check", "--no-cache", *arguments, "."],
        cwd=project,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == b""
    return done.stdout.decode()


@pytest.mark.parametrize("form", TEXT_FORMATS)
def test_text(project: Path, form: str) -> None:
    out = _check(project, "--output-format", form)
    assert "\x1b" not in out
    assert "\r" not in out
    assert not any(line.startswith("TL999") for line in out.splitlines())
    assert "TL501" in out


def test_a_diff_in_a_pipe_is_for_patch_and_quotes_names(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchlint", "fix", "--no-cache", "."],
        cwd=project,
        capture_output=True,
        check=False,
    )
    names = [line for line in done.stdout.splitlines() if line.startswith((b"---", b"+++"))]
    assert len(names) == 2
    assert b"\x1b" not in b"".join(names) + done.stderr
    assert not any(line.startswith(b"TL999") for line in done.stdout.splitlines())


def test_a_diff_on_a_terminal_writes_escapes_out(project: Path) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "torchlint", "fix", "--no-cache", "--color", "never", "."]
    with subprocess.Popen(command, cwd=project, stdout=follower, stderr=follower) as running:
        os.close(follower)
        shown = b""
        while True:
            try:
                read = os.read(leader, 65536)
            except OSError:
                break
            if not read:
                break
            shown += read
    os.close(leader)
    assert running.returncode == 1
    assert b"\\x1b]8;;http://evil\\x07 click" in shown
    assert b"\x1b]8" not in shown


def test_json_and_xml_hold_the_name_as_it_is(project: Path) -> None:
    (entry,) = json.loads(_check(project, "--output-format", "json"))
    assert Path(entry["filename"]).name == EVIL
    lines = _check(project, "--output-format", "json-lines").splitlines()
    assert [json.loads(line)["code"] for line in lines] == ["TL501"]
    root = ElementTree.fromstring(_check(project, "--output-format", "junit"))
    assert len(list(root.iter("failure"))) == 1


def test_a_configuration_cannot_forge_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "torchlint.toml").write_text('"ign\\u001b[2J\\nerror: forged" = []\n')
    done = subprocess.run(
        [sys.executable, "-m", "torchlint", "check", "."],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
