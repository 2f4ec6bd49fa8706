"""`torchlint new --pack`: a project that works once it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_shell import QuickShell

STEM = "acme101_backward_on_one_thread"
FILES = [
    "torchlint-acme/pyproject.toml",
    "torchlint-acme/README.md",
    "torchlint-acme/torchlint_acme/__init__.py",
    f"torchlint-acme/torchlint_acme/{STEM}.py",
    f"torchlint-acme/torchlint_acme/{STEM}.md",
    "torchlint-acme/tests/test_rules.py",
]
SLOW = """\
import torch
torch.autograd.set_multithreading_enabled(False)
x = torch.ones(1, requires_grad=True)
"""


@dataclass(frozen=True)
class Site:
    """A folder with a new pack in it, and the place where that is installed."""

    folder: Path

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python where the pack is installed."""
        path = os.pathsep.join(
            filter(None, [str(self.folder / "site"), os.environ.get("PYTHONPATH")])
        )
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Return a new pack that pip has built and installed."""
    folder = tmp_path_factory.mktemp("packs")
    done = QuickShell(folder).run("new", "--pack", "torchlint-acme")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == FILES
    made = Site(folder)
    install = ("-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps")
    done = made.python(*install, "--target", "site", "./torchlint-acme")
    assert done.returncode == 0, done.stderr
    return made


def test_its_own_tests_pass(site: Site) -> None:
    done = site.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "torchlint-acme")
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_its_rule_is_found_and_fixed(site: Site) -> None:
    (site.folder / "train.py").write_text(SLOW)
    done = site.python("-m", "torchlint", "fix", "--apply", "--isolated", "--no-cache", "train.py")
    assert done.returncode == 0, done.stderr
    assert "multithreading" not in (site.folder / "train.py").read_text()
    assert "ACME101" in site.python("-m", "torchlint", "explain", "ACME101").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        (
            "ruff",
            "check",
            "--isolated",
            "--select=B,E,F,I,UP,W",
            "--line-length=100",
            "torchlint-acme",
        ),
        ("ruff", "format", "--isolated", "--line-length=100", "--check", "torchlint-acme"),
        ("mypy", "--strict", "--cache-dir", os.devnull, f"site/torchlint_acme/{STEM}.py"),
    ],
)
def test_it_passes_the_usual_checks(site: Site, arguments: tuple[str, ...]) -> None:
    done = site.python("-m", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pack", "Acme"), "`Acme` is not a pack name: use lower-case words with hyphens"),
        (("--pack", "torchlint"), "`torchlint` is taken: another module or keyword"),
        (("--pack", "class"), "`class` is taken"),
        (("--pack", "there"), "there exists"),
        (("--pack", "x9"), "`X101` is not a rule code for a pack: use two to five letters, not TL"),
        (("--pack", "acme", "--code", "TL101"), "`TL101` is not a rule code for a pack"),
        (("Slow", "--pack", "acme"), "`Slow` is not a rule name"),
        (("--pack", "acme", "--family", "2"), "a pack has no families"),
        ((), "say what the rule looks for"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "there").mkdir()
    done = QuickShell(tmp_path).run("new", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_the_rule_may_be_named(tmp_path: Path) -> None:
    done = QuickShell(tmp_path).run("new", "slow-thing", "--pack", "acme", "--code", "ab300")
    assert "acme/acme/ab300_slow_thing.py" in done.stdout.splitlines()
