"""Whoever builds a commit gets the same bytes, and nothing in them that was not committed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATE = "1700000000"
MADE = "PKG-INFO"


@dataclass(frozen=True)
class Release:
    """What one build made of a tree."""

    tree: Path
    sdist: Path
    wheel: Path


def _files() -> list[str]:
    """List what is committed or about to be."""
    if not (ROOT / ".git").exists():
        pytest.skip("what is committed can only be told in a checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def _build(tree: Path, *targets: str) -> Path:
    """Build in a process of its own, as `make dist` does, and give the folder."""
    folder = tree.with_name(f"{tree.name}-dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    options = [word for target in targets for word in ("-t", target)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": DATE}
    done = subprocess.run(
        [*command, *options], cwd=tree, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def _release(tree: Path, mode: int, when: int) -> Release:
    """Copy the files with other rights and dates than they have, and build them."""
    for name in _files():
        copy = tree / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
        copy.chmod(mode)
        os.utime(copy, (when, when))
    folder = _build(tree, "sdist", "wheel")
    return Release(tree, next(folder.glob("*.tar.gz")), next(folder.glob("*.whl")))


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Release]:
    folder = tmp_path_factory.mktemp("releases")
    first = _release(folder / "first", 0o644, 1_000_000_000)
    return first, _release(folder / "a-second-one", 0o600, 1_600_000_000)


def test_two_builds_are_the_same_bytes(releases: tuple[Release, Release]) -> None:
    first, second = releases
    assert first.sdist.read_bytes() == second.sdist.read_bytes()
    assert first.wheel.read_bytes() == second.wheel.read_bytes()


def test_the_source_distribution_holds_what_is_committed(
    releases: tuple[Release, Release],
) -> None:
    with tarfile.open(releases[0].sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    assert names <= {*_files(), MADE}
    assert {"torchlint/__init__.py", "tests/release/test_reproducible.py", "LICENSE"} <= names


def test_both_hold_the_page_of_every_rule(releases: tuple[Release, Release]) -> None:
    modules = {name for name in _files() if re.fullmatch(r"rules/.*/tl\d{3}_\w+\.py", name)}
    pages = {name.replace(".py", ".md") for name in modules}
    with tarfile.open(releases[0].sdist) as archive:
        assert pages <= {member.name.partition("/")[2] for member in archive.getmembers()}
    with zipfile.ZipFile(releases[0].wheel) as wheel:
        assert {name.removeprefix("rules/") for name in pages} <= set(wheel.namelist())


def test_the_wheel_of_the_source_distribution_is_the_wheel(
    releases: tuple[Release, Release], tmp_path: Path
) -> None:
    with tarfile.open(releases[0].sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    (wheel,) = _build(tree, "wheel").glob("*.whl")
    assert wheel.read_bytes() == releases[0].wheel.read_bytes()
