"""Names and texts of a hostile repository cannot steer a terminal or add lines to a report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from processes import on_terminal

EVIL = "a\x1b[2Jb\nTL999 forged\r.py"
SCRIPT = """import torch
model = torch.nn.Linear(2048, 2048).cuda()
optimizer = torch.optim.Adam(model.parameters())
"""
TEXT_FORMATS = ("full", "concise", "grouped", "github", "azure", "pylint")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "torchlint.toml").write_text('target-torch = "2.9"\n')
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
    command = [sys.executable, "-m", "torchlint", "fix", "--no-cache", "--color", "never", "."]
    code, shown = on_terminal(command, project)
    assert code == 1
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


FORMS = (*TEXT_FORMATS, "json", "json-lines", "sarif", "gitlab", "junit", "rdjson", "markdown")


def _steers(project: Path, *arguments: str, codes: tuple[int, ...] = (1,)) -> str:
    """Run torchlint in colours; give what it printed once that holds nothing that steers."""
    done = subprocess.run(
        [sys.executable, "-m", "torchlint", *arguments],
        cwd=project,
        env={**os.environ, "FORCE_COLOR": "1"},
        capture_output=True,
        check=False,
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode in codes, said
    assert not any(mark in said for mark in ("\x1b[2J", "\x1b]8;;http://evil", "\x9b", "\r"))
    assert not any(line.strip().startswith("TL999") for line in said.splitlines())
    return said


@pytest.mark.parametrize("form", FORMS)
def test_a_planted_cache_cannot(tmp_path: Path, form: str) -> None:
    """Not even one that fits the file, the settings and the installation."""
    (tmp_path / "a.py").write_text(SCRIPT)
    _steers(tmp_path, "check", "a.py")
    (kept,) = (tmp_path / ".torchlint_cache").glob("*.json")
    entries = json.loads(kept.read_text())
    for about, (code, start, end, _, fix, _, impact) in entries.values():
        notes = [[0, 5, EVIL, EVIL, 3]]
        said = [code, start, end, EVIL, [EVIL, fix[1], EVIL, fix[3]], notes, impact]
        entries = {key: [about, said] for key in entries}
    kept.write_text(json.dumps(entries))
    assert "forged" in _steers(tmp_path, "check", "--output-format", form, "a.py") or form not in (
        "full",
        "json",
    )


def test_a_planted_cache_fixes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SCRIPT)
    _steers(tmp_path, "check", "a.py")
    (kept,) = (tmp_path / ".torchlint_cache").glob("*.json")
    entries = json.loads(kept.read_text())
    for entry in entries.values():
        entry[1][4] = ["Do", 3, "", [[0, 0, "__import__('os')\n"]]]
    kept.write_text(json.dumps(entries))
    _steers(tmp_path, "fix", "--apply", "--unsafe-fixes", "a.py", codes=(0,))
    assert "__import__" not in (tmp_path / "a.py").read_text()


@pytest.mark.parametrize("form", FORMS)
def test_a_notebook_cannot(tmp_path: Path, form: str) -> None:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": SCRIPT + f"# {EVIL!r}\n"},
        {"cell_type": EVIL, "metadata": {}, "source": EVIL},
        {"cell_type": "code", "id": EVIL, "metadata": {}, "outputs": [], "source": f"%%{EVIL}\nx"},
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": f"x = '{EVIL}"},
    ]
    for count, name in ((3, "a.ipynb"), (4, f"{EVIL}.ipynb")):
        document = {"cells": cells[:count], "metadata": {"kernelspec": {"name": EVIL}}}
        (tmp_path / name).write_text(json.dumps({**document, "nbformat": 4}))
    said = _steers(tmp_path, "check", "--no-cache", "--output-format", form, ".")
    assert "TL501" in said
    assert "TL001" in said


@pytest.mark.parametrize(
    "document",
    [
        {"version": EVIL},
        {"version": 1, "findings": [{"path": EVIL, "code": EVIL, "statement": EVIL, "count": 1}]},
    ],
    ids=["version", "finding"],
)
def test_a_baseline_cannot(tmp_path: Path, document: dict[str, object]) -> None:
    (tmp_path / "a.py").write_text(SCRIPT)
    (tmp_path / "torchlint.toml").write_text('baseline = "known.json"\ntarget-torch = "2.9"\n')
    (tmp_path / "known.json").write_text(json.dumps({"tool": "torchlint", **document}))
    for arguments in (("check", "--verbose"), ("fix",)):
        _steers(tmp_path, *arguments, ".", codes=(1, 2))


def test_the_name_of_a_folder_cannot(tmp_path: Path) -> None:
    folder = tmp_path / EVIL
    folder.mkdir()
    (folder / "torchlint.toml").write_text('exclude = ["x"]\n')
    assert "\\x1b[2J" in _steers(folder, "config", codes=(0,))
    (folder / "torchlint.toml").write_text('exlude = ["x"]\n')
    _steers(folder, "check", codes=(2,))


def test_names_in_errors_cannot(project: Path) -> None:
    (project / f"{EVIL}bytes.py").write_bytes(b"# torch\n\xff")
    (project / f"{EVIL}link.py").symlink_to(f"{EVIL}gone")
    for arguments in (("--statistics",), ("--show-files",), ("--add-ignore",), (f"{EVIL}no",)):
        _steers(project, "check", "--no-cache", *arguments, ".", f"{EVIL}link.py", codes=(2,))
    _steers(project, "audit", EVIL, codes=(0,))
    _steers(project, "audit", "--output-format=markdown", EVIL, codes=(0,))
