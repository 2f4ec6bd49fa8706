"""`torchlint setup` writes the skill of an agent, and nothing over what somebody wrote."""

from __future__ import annotations

import re

import click
import pytest
from checkouts import ROOT
from cli_shell import Shell

from torchlint.cli.program import program

SKILL = (ROOT / "torchlint" / "SKILL.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "guide" / "agents.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("agent", "folder"), re.findall(r"^\| `(\w+)` \| `(\.[\w./]+)`", PAGE, re.MULTILINE)
)
def test_the_skill_is_where_the_page_says(quick: Shell, agent: str, folder: str) -> None:
    for _ in range(2):
        done = quick.run("setup", "--agent", agent)
        assert (done.returncode, done.stdout) == (0, f"{folder}/torchlint/SKILL.md\n")
    assert quick.read(done.stdout.strip()) == SKILL


def test_what_somebody_wrote_stays(quick: Shell) -> None:
    file = quick.write(".claude/skills/torchlint/SKILL.md", "mine\n")
    done = quick.run("setup", "--agent", "claude")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is there already and differs" in done.stderr
    assert file.read_text() == "mine\n"


def test_a_folder_that_cannot_be_made_is_one_line(quick: Shell) -> None:
    quick.write(".claude", "")
    done = quick.run("setup", "--agent", "claude")
    assert done.returncode == 2
    assert re.fullmatch(r"error: \.claude/\S+ cannot be written: .*\n", done.stderr)
    assert quick.run("setup").returncode == 2


def test_the_page_shows_the_skill() -> None:
    assert f"```markdown\n{SKILL}```\n" in PAGE


def test_the_skill_names_what_there_is() -> None:
    assert re.findall(r"^name: (.*)$", SKILL, re.MULTILINE) == ["torchlint"]
    commands = re.findall(r"`torchlint (\w+)", SKILL)
    assert commands
    assert set(commands) <= set(program.list_commands(click.Context(program)))
