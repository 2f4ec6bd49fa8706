"""Scripts that run nothing by themselves: what runs them is named."""

from __future__ import annotations

import pytest
from cli_shell import Shell

ENGINE = "def train(net):\n    net.backward()\n"
MAIN = "from engine import train\n\nif __name__ == '__main__':\n    train(None)\n"


@pytest.fixture
def project(quick: Shell) -> Shell:
    quick.write("pyproject.toml", "")
    quick.write("lib/engine.py", ENGINE)
    quick.write("lib/notes.py", "import engine\n")
    return quick


@pytest.mark.parametrize("command", ["verify", "tune"])
def test_the_scripts_that_run_a_module_are_named(project: Shell, command: str) -> None:
    project.write("lib/main.py", MAIN)
    done = project.run(command, "lib/engine.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: lib/engine.py runs nothing by itself; "
        f"what runs it: `torchlint {command} lib/main.py`\n"
    )


def test_the_nearest_three_are_enough(project: Shell) -> None:
    for number in range(5):
        project.write(f"lib/main{number}.py", MAIN)
    said = project.run("verify", "lib/engine.py").stderr
    assert [f"lib/main{number}.py`" in said for number in range(5)] == [True] * 3 + [False] * 2
    assert said.endswith(", or one of 2 more\n")


def test_a_module_that_nothing_runs_is_not_refused_for_that(project: Shell) -> None:
    assert "runs nothing by itself" not in project.run("verify", "lib/engine.py").stderr


@pytest.mark.parametrize("command", ["verify", "tune"])
def test_in_a_folder_what_trains_is_named(project: Shell, command: str) -> None:
    project.write("lib/main.py", MAIN)
    said = "is a folder: give it a script that trains"
    assert project.run(command, "lib").stderr == (
        f"error: lib {said}: `torchlint {command} lib/main.py`\n"
    )
    project.write("data/note.txt", "")
    assert project.run(command, "data").stderr == f"error: data {said}\n"
