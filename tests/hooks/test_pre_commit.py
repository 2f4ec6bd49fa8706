"""The hooks of pre-commit, run by pre-commit itself on a repository with one training script.

pre-commit makes an environment of its own and installs torchlint there, which takes an index of
packages: without one these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml", "torchlint")
LOOP = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import MNIST

device = "cuda"
model = nn.Linear(4, 1).to(device)
loader = DataLoader(MNIST("data"), batch_size=4)
for batch in loader:
    model(batch.to(device)).sum().backward()
"""


@dataclass(frozen=True)
class Outcome:
    """What pre-commit said, and the repository that it said it of."""

    output: str
    project: Path

    def of(self, hook: str) -> str:
        """Return what pre-commit said of one hook."""
        return next(part for part in self.output.split("\ntorchlint ") if part.startswith(hook))


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
    }
    return subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, **identity},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _repository(folder: Path) -> Path:
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
        done = _run(folder, "git", *arguments)
        assert done.returncode == 0, done.stdout
    return folder


def _skip_without_an_index(folder: Path) -> None:
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir")
    done = _run(folder, *pip, "--dest", str(folder / "probe"), "iniconfig")
    if done.returncode:
        pytest.skip("pip reaches no index of packages: pre-commit cannot make its environment")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run both hooks over a repository, once."""
    folder = tmp_path_factory.mktemp("hooks")
    _skip_without_an_index(folder)
    ours, theirs = folder / "torchlint", folder / "theirs"
    for name in NEEDED:
        _copy(ROOT / name, ours / name)
    _copy(ROOT / "rules" / "torchlint_rules", ours / "rules" / "torchlint_rules")
    theirs.mkdir()
    (theirs / "train.py").write_text(LOOP)
    (theirs / "legacy.py").write_text(LOOP)
    (theirs / "notes.md").write_text("no script\n")
    (theirs / "torchlint.toml").write_text('exclude = ["legacy.py"]\nignore = ["TL101"]\n')
    _repository(theirs)
    command = ("try-repo", str(_repository(ours)), "--all-files", "--verbose")
    done = _run(theirs, sys.executable, "-m", "pre_commit", *command)
    assert done.returncode == 1, done.stdout
    return Outcome(done.stdout, theirs)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def test_the_check_reports_and_fails(outcome: Outcome) -> None:
    said = outcome.of("check")
    assert "Failed\n- hook id: torchlint-check\n" in said
    assert "- exit code: 1" in said
    assert "train.py:8:10: TL102 [unpinned-loader] medium" in said
    assert "files were modified" not in said


def test_the_fix_changes_files_and_fails(outcome: Outcome) -> None:
    said = outcome.of("fix")
    assert "Failed\n- hook id: torchlint-fix\n" in said
    assert "- files were modified by this hook" in said
    fixed = (outcome.project / "train.py").read_text()
    assert "batch_size=4, pin_memory=torch.cuda.is_available())" in fixed


def test_excluded_files_stay_as_they_are(outcome: Outcome) -> None:
    assert "legacy.py" not in outcome.output
    assert (outcome.project / "legacy.py").read_text() == LOOP


def test_the_hooks_need_no_torch(outcome: Outcome) -> None:
    assert "internal error" not in outcome.output.lower()
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    required = metadata.partition("\ndependencies = [")[2].partition("]")[0]
    assert "libcst" in required
    assert "torch" not in required
    assert "numpy" not in required


def test_pre_commit_takes_the_manifest() -> None:
    manifest = str(ROOT / ".pre-commit-hooks.yaml")
    done = _run(ROOT, sys.executable, "-m", "pre_commit", "validate-manifest", manifest)
    assert done.returncode == 0, done.stdout
