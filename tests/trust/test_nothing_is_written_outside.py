"""A repository names no file outside of itself that a run writes to, and none that never ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
WAITING = 60
"""Seconds after which a run that waits for what never comes is ended."""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a repository beside a file that is none of its business."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("kept\n")
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return folder


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torchlint", *arguments, "."],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAITING,
    )


def _outside(repository: Path) -> dict[str, str]:
    folder = repository.parent / "outside"
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("key", ["output-file", "cache-dir", "baseline"])
@pytest.mark.parametrize("place", ["../outside/{}", "{top}/outside/{}", "link/{}", "{}-link"])
def test_a_configuration_names_no_place_outside(repository: Path, key: str, place: str) -> None:
    named = "kept" if key == "output-file" else "made"
    (repository / "link").symlink_to("../outside")
    (repository / f"{named}-link").symlink_to(f"../outside/{named}")
    path = place.format(named, top=repository.parent)
    (repository / "torchlint.toml").write_text(f'jobs = 1\n{key} = "{path}"\n')
    commands = (("check",), ("fix",), ("check", "--write-baseline"), ("fix", "--apply"))
    for command in commands[: 4 if place.startswith("..") else 1]:
        done = _run(repository, *command)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2
        assert line.startswith("error: ")
        assert f"torchlint.toml:2: `{key}`: {path} lies outside of the folder" in line
        assert _outside(repository) == {"kept": "kept\n"}
    assert (repository / "train.py").read_text() == SCRIPT


def test_the_command_line_may_name_any_place(repository: Path) -> None:
    done = _run(repository, "check", "--output-file=../outside/report", "--cache-dir=../outside/c")
    assert done.returncode == 1
    assert "TL801" in (repository.parent / "outside" / "report").read_text()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("key", ["output-file", "baseline", "cache-dir"])
def test_a_pipe_that_nobody_writes_to_is_named_by_a_configuration(
    repository: Path, key: str
) -> None:
    os.mkfifo(repository / "pipe")
    (repository / "torchlint.toml").write_text(f'{key} = "pipe"\n')
    done = _run(repository, "check")
    assert done.returncode == 2
    assert "pipe is neither file nor folder" in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("name", [".gitignore", "torchlint.toml", "pyproject.toml", "a.py"])
def test_a_pipe_in_the_place_of_a_file_is_passed_over(repository: Path, name: str) -> None:
    os.mkfifo(repository / name)
    done = _run(repository, "check", "--no-cache", "--output-format=concise", "--quiet")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("train.py:2:1: TL801")


@pytest.mark.parametrize("target", ["../outside/kept", "/dev/zero"])
def test_a_link_is_no_gitignore(repository: Path, target: str) -> None:
    (repository.parent / "outside" / "kept").write_text("train.py\n")
    (repository / ".gitignore").symlink_to(target)
    done = _run(repository, "check", "--no-cache", "--output-format=concise", "--quiet")
    assert done.stdout.startswith("train.py:2:1: TL801")


def test_a_cache_that_is_a_link_is_not_used(repository: Path) -> None:
    (repository / ".torchlint_cache").symlink_to("../outside")
    assert _run(repository, "check").returncode == 1
    assert _outside(repository) == {"kept": "kept\n"}


def test_a_link_in_a_cache_is_not_followed(repository: Path) -> None:
    (repository / ".torchlint_cache").mkdir()
    (repository / ".torchlint_cache" / ".gitignore").symlink_to("../../outside/made")
    assert _run(repository, "check").returncode == 1
    assert _outside(repository) == {"kept": "kept\n"}
    assert list((repository / ".torchlint_cache").glob("*.json"))
