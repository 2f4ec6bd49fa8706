"""`check --since`: only what a change adds."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from cli_shell import QuickShell, Shell

from torchlint.cli.since import Hunk

SLOW = "slow()\nx = 1\nslow()\n"


@pytest.fixture
def repository(quick: Shell) -> Shell:
    """Return a folder with a commit on `main` that has two findings in `a.py`."""
    git(quick, "init", "--quiet", "--initial-branch=main")
    quick.write("a.py", SLOW)
    commit(quick)
    return quick


def git(shell: Shell, *arguments: str) -> None:
    """Run git in the folder, with no settings of this machine."""
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=shell.folder,
        env={**os.environ, **settings},
        check=True,
        capture_output=True,
    )


def commit(shell: Shell) -> None:
    git(shell, "add", "--all")
    git(shell, "commit", "--quiet", "--message", "more")


def found(shell: Shell, ref: str = "main", *paths: str) -> list[str]:
    """Return the places of the findings since a revision."""
    done = shell.check("--since", ref, "--output-format", "concise", "--quiet", *paths)
    assert done.stderr == ""
    return [line.partition(": ")[0] for line in done.stdout.splitlines()]


def test_only_changed_lines_count(repository: Shell) -> None:
    assert found(repository) == []
    repository.write("a.py", SLOW + "y = 2\nslow()\n")
    assert found(repository) == ["a.py:5:1"]
    done = repository.check("--since", "main")
    assert done.returncode == 1
    assert "2 findings hidden: not on a line changed since main.\n" in done.stdout
    repository.write("a.py", SLOW + "y = 2\n")
    assert repository.check("--since", "main").returncode == 0


def test_a_branch_is_compared_with_where_it_began(repository: Shell) -> None:
    git(repository, "checkout", "--quiet", "-b", "topic")
    repository.write("b.py", "slow()\n")
    commit(repository)
    git(repository, "checkout", "--quiet", "main")
    repository.write("a.py", "slow()\nslow()\n" + SLOW)
    commit(repository)
    git(repository, "checkout", "--quiet", "topic")
    assert found(repository) == ["b.py:1:1"]


def test_untracked_and_renamed_files(repository: Shell) -> None:
    repository.write("new ü.py", "slow()\n")
    assert found(repository) == ["new ü.py:1:1"]
    git(repository, "mv", "a.py", "moved.py")
    assert found(repository) == ["new ü.py:1:1"]


@pytest.mark.parametrize(
    ("hunk", "rows", "touches"),
    [
        (Hunk(3, 2), (1, 2), False),
        (Hunk(3, 2), (1, 3), True),
        (Hunk(3, 2), (4, 9), True),
        (Hunk(3, 2), (5, 9), False),
        (Hunk(3, 0), (3, 3), False),
        (Hunk(3, 0), (3, 4), True),
        (Hunk(3, 0), (4, 5), False),
    ],
)
def test_a_deletion_counts_within_a_statement(
    hunk: Hunk, rows: tuple[int, int], touches: bool
) -> None:
    assert hunk.touches(*rows) == touches


def test_a_subfolder_and_a_name_with_quotes(repository: Shell) -> None:
    repository.write('sub/a"b\t.py', "x = 1\n")
    commit(repository)
    git(repository, "branch", "before")
    repository.write('sub/a"b\t.py', "x = 1\nslow()\n")
    inner = QuickShell(repository.folder / "sub")
    assert len(found(inner, "before")) == 1


def test_cells_of_a_notebook(repository: Shell) -> None:
    def notebook(*cells: str) -> str:
        made = [
            {"cell_type": "code", "source": [cell], "metadata": {}, "outputs": []} for cell in cells
        ]
        return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})

    repository.write("n.ipynb", notebook("slow()"))
    commit(repository)
    git(repository, "branch", "before")
    repository.write("n.ipynb", notebook("x = 1", "slow()", "y = slow()"))
    assert found(repository, "before") == ["n.ipynb:cell 3:1:5"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "gone"], "`--since gone`: git knows no such revision"),
        (["--since", "--output=x"], "`--since --output=x`: git knows no such revision"),
        (["--since", "main", "--fix"], "`--since` and `--fix` cannot go together"),
    ],
)
def test_wrong_calls(repository: Shell, options: list[str], said: str) -> None:
    done = repository.check(*options)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_folder_without_git_is_an_error_in_one_line(quick: Shell) -> None:
    quick.write("a.py", SLOW)
    done = quick.run("check", "--since", "main", environment={"GIT_DIR": "/nowhere"})
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: `--since`: git: ")


def test_a_machine_without_git_is_an_error_in_one_line(quick: Shell) -> None:
    quick.write("a.py", SLOW)
    done = quick.run("check", "--since", "main", environment={"PATH": "/nowhere"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: `--since` needs git, which is not installed\n"


def test_nothing_is_replayed(repository: Shell) -> None:
    shell = Shell(repository.folder)
    shell.write("a.py", SLOW + "slow()\n")
    arguments = ("check", "--select", "XY", "--since", "HEAD", "--quiet")
    assert shell.run(*arguments).returncode == 1
    commit(shell)
    assert shell.run(*arguments).returncode == 0


NOISE = """\
import torch


def noisy(images):
    return images + torch.zeros(28, 28).to("cuda")
"""
TRAIN = """\
import torch
from noise import noisy

model = torch.nn.Linear(784, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for images, labels in torch.utils.data.DataLoader(torch.load("data.pt")):
    loss = model(noisy(images.cuda()).flatten(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_changed_line_of_another_file_that_a_note_names_counts(repository: Shell) -> None:
    repository.write("pyproject.toml", "")
    repository.write("noise.py", NOISE)
    repository.write("train.py", TRAIN)
    commit(repository)
    since = ("check", "--select", "TL203", "--since", "main", "--output-format", "concise")
    assert repository.run(*since).returncode == 0
    repository.write("train.py", TRAIN.replace("\nfor", "\n# the loop\nfor"))
    assert repository.run(*since).returncode == 0
    repository.write("train.py", TRAIN.replace("DataLoader(", "DataLoader(dataset="))
    done = repository.run(*since)
    assert done.returncode == 1
    assert done.stdout.startswith("noise.py:5:21: TL203")
    assert "note: train.py:6: " in done.stdout


def test_the_first_line_of_a_file_does_not_stand_for_notes_elsewhere(repository: Shell) -> None:
    repository.write("pyproject.toml", "")
    repository.write("noise.py", NOISE)
    repository.write("train.py", TRAIN)
    commit(repository)
    repository.write("noise.py", "# more\n" + NOISE)
    assert repository.run("check", "--select", "TL203", "--since", "main").returncode == 0
