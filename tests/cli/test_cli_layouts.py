"""`project-root` and `src` tell where a project is and where its modules are."""

from __future__ import annotations

import pytest
from cli_shell import Shell
from small_program import FILES

CHOSEN = ("--select", "TL203,TL204", "--output-format", "concise")


@pytest.fixture
def scattered(quick: Shell) -> Shell:
    """Return a folder with a program of two packages, each a project of its own."""
    for name, text in FILES.items():
        package = "apps/run" if name == "train.py" else "libs/core"
        quick.write(f"{package}/{name}", text)
        quick.write(f"{package}/pyproject.toml", "")
    return quick


def _found(shell: Shell) -> list[str]:
    printed = shell.run("check", *CHOSEN).stdout
    return [
        line.split(": ")[0] for line in printed.splitlines() if ".py:" in line and ": TL20" in line
    ]


def test_projects_side_by_side_are_apart(scattered: Shell) -> None:
    assert _found(scattered) == []


def test_a_root_alone_does_not_find_modules_of_other_folders(scattered: Shell) -> None:
    scattered.write("torchlint.toml", 'project-root = "."\n')
    assert _found(scattered) == []


def test_a_root_and_source_folders_join_them(scattered: Shell) -> None:
    scattered.write("torchlint.toml", 'project-root = "."\nsrc = ["libs/core"]\n')
    assert _found(scattered) == [
        "apps/run/train.py:8:19",
        "libs/core/helpers.py:5:20",
    ]


@pytest.mark.parametrize("root", ["..", "nowhere", "apps/run/train.py"])
def test_a_root_is_a_folder_of_the_configuration(scattered: Shell, root: str) -> None:
    scattered.write("torchlint.toml", f'project-root = "{root}"\n')
    done = scattered.run("check")
    assert done.returncode == 2
    assert "torchlint.toml:1: `project-root`: " in done.stderr
    assert done.stderr.count("\n") == 1
