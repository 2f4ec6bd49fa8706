from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchlint.config import ConfigError
from torchlint.engine import Discovery, Project, discover
from torchlint.registry import load_registry


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "train.py",
        "notes.txt",
        "stubs.pyi",
        "data/load.py",
        "data/raw/old.py",
        ".venv/lib/site.py",
        "build/made.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _discover(*paths: str, **overrides: object) -> Discovery:
    return discover(map(Path, paths), Project(load_registry(), overrides).settings_at)


def _found(*paths: str, **overrides: object) -> list[str]:
    discovery = _discover(*paths, **overrides)
    assert discovery.errors == ()
    return [path.as_posix() for path in discovery.files]


def test_python_files_below_a_folder(tree: Path) -> None:
    assert _found(".") == ["data/load.py", "data/raw/old.py", "train.py"]
    assert _found("data", "data/load.py", "train.py") == _found(".")


def test_a_named_file_is_taken_whatever_its_name(tree: Path) -> None:
    assert _found("notes.txt", ".venv/lib/site.py") == [".venv/lib/site.py", "notes.txt"]
    assert _found("stubs.pyi") == []
    assert _found(".venv/lib/site.py", force_exclude=True) == []


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("raw", ["data/load.py", "train.py"]),
        ("data/raw", ["data/load.py", "train.py"]),
        ("data/raw/", ["data/load.py", "train.py"]),
        ("data/*/old.py", ["data/load.py", "train.py"]),
        ("**/load.py", ["data/raw/old.py", "train.py"]),
        ("l*.py", ["data/raw/old.py", "train.py"]),
        ("aw", ["data/load.py", "data/raw/old.py", "train.py"]),
    ],
)
def test_excluded_patterns(tree: Path, pattern: str, left: list[str]) -> None:
    assert _found(".", extend_exclude=(pattern,)) == left


def test_what_macos_puts_beside_files_is_left_out(tree: Path) -> None:
    before = _found(".")
    (tree / "._train.py").write_bytes(bytes.fromhex("00051607") + b"Mac OS X")
    assert _found(".") == before


def test_exclude_replaces_the_usual_ones(tree: Path) -> None:
    assert "build/made.py" in _found(".", exclude=("data", ".venv"))


def test_gitignore_is_respected_from_the_top_of_the_repository(tree: Path) -> None:
    (tree / ".git").mkdir()
    (tree / ".gitignore").write_text("# comment\n/train.py\nold.py\n")
    (tree / "data" / ".gitignore").write_text("!raw/old.py\nload.py\n")
    assert _found(".") == ["data/raw/old.py"]
    assert _found("data/raw") == ["data/raw/old.py"]
    assert _found("data") == ["data/raw/old.py"]
    assert _found(".", respect_gitignore=False) == ["data/load.py", "data/raw/old.py", "train.py"]
    assert _found("train.py") == ["train.py"]


def test_a_path_that_does_not_exist_is_one_line(tree: Path) -> None:
    discovery = _discover("trian.py", "train.py")
    assert discovery.errors == ("trian.py does not exist",)
    assert discovery.files == (Path("train.py"),)


def test_a_dangling_link_is_one_line_where_it_is_named(tree: Path) -> None:
    (tree / "gone.py").symlink_to("nowhere.py")
    (tree / ".#train.py").symlink_to("me@host.123")
    said = "gone.py is a link to nowhere.py, which does not exist"
    assert _discover("gone.py").errors == (said,)
    assert _discover(".").errors == ()
    assert len(_discover(".").files) == 3


def test_links_are_taken_once_and_loops_end(tree: Path) -> None:
    (tree / "data" / "again.py").symlink_to("load.py")
    (tree / "data" / "loop").symlink_to("..")
    (tree / "self.py").symlink_to("self.py")
    (tree / "linked.py").symlink_to("notes.txt")
    discovery = _discover(".")
    assert [path.name for path in discovery.files] == ["load.py", "old.py", "linked.py", "train.py"]
    assert discovery.errors == ()
    (error,) = _discover("self.py").errors
    assert error.startswith("self.py is a link to self.py")


def test_links_out_of_the_tree_are_not_followed_unless_they_are_named(tree: Path) -> None:
    outside = tree.parent / "outside.py"
    outside.write_text("x = 1\n")
    (tree / "data" / "out.py").symlink_to(outside)
    (tree / "data" / "up.py").symlink_to("../notes.txt")
    assert _found("data") == ["data/load.py", "data/raw/old.py", "data/up.py"]
    assert _found("data/out.py") == ["data/out.py"]


def test_what_is_no_file_is_passed_over(tree: Path) -> None:
    os.mkfifo(tree / "pipe.py")
    assert "pipe.py" not in _found(".")
    assert "pipe.py is not a regular file" in _discover("pipe.py").errors[0]


def test_each_folder_has_its_own_settings(tree: Path) -> None:
    (tree / "torchlint.toml").write_text('extend-exclude = ["train.py"]\n')
    (tree / "data" / "torchlint.toml").write_text('extend-exclude = ["load.py"]\n')
    assert _found(".") == ["data/raw/old.py"]
    (tree / "data" / "torchlint.toml").write_text("exlude = []\n")
    with pytest.raises(ConfigError, match="did you mean `exclude`"):
        _discover(".")
