"""`verify --against`: a git revision as the original, the working tree as the variant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.scripts import run, write

from torchlint.cli.against import Against
from torchlint.finding import Safety
from torchlint.harness.judging.parity import Parity
from torchlint.harness.judging.statistics import Speedup
from torchlint.harness.judging.verdict import Outcome, Report, Revision, Verdict
from torchlint.harness.plan import ORIGINAL, Variant
from torchlint.harness.trace import ParameterMatch, Trace

CALL = "from torchlint.cli import main; main()"
TREE = Variant("tree", (), Safety.UNSAFE, {}, judged=False)
LAYOUTS = {
    "a module that became a package": ({"m.py": "A = 'old'\n"}, {"m/__init__.py": "A = 1\n"}),
    "a package that became a module": ({"m/__init__.py": "A = 'old'\n"}, {"m.py": "A = 1\n"}),
    "a module that was removed": ({"m.py": "A = 'old'\n"}, {}),
    "a package that was removed": (
        {"m/__init__.py": "from m.inner import A\n", "m/inner.py": "A = 'old'\n"},
        {},
    ),
    "a folder without a package file": (
        {"m.py": "from parts.inner import A\n", "parts/inner.py": "A = 'old'\n"},
        {},
    ),
    "a module that was changed": ({"m.py": "A = 'old'\n"}, {"m.py": "A = 1\n"}),
}


def write_all(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write(folder, text, name)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_run_imports_the_modules_of_the_revision(tmp_path: Path, name: str) -> None:
    before, after = LAYOUTS[name]
    write_all(tmp_path, after)
    script = write(tmp_path, "import m\nif m.A != 'old':\n    raise ValueError(m.A)\n")
    texts = {str(tmp_path / file): text for file, text in before.items()}
    absent = [str(tmp_path / file) for file in after if file not in before]
    assert run(script, texts=texts, absent=tuple(absent)).failure is None


def test_a_run_cannot_import_what_the_revision_does_not_have(tmp_path: Path) -> None:
    new = write(tmp_path, "A = 1\n", "new.py")
    script = write(tmp_path, "import new\n")
    trace = run(script, absent=(str(new),))
    assert trace.failure is not None
    assert "No module named 'new'" in trace.failure.message


def git(folder: Path, *arguments: str) -> None:
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=folder,
        env={**os.environ, **settings},
        check=True,
        capture_output=True,
        timeout=300,
    )


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "more")


def verify(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CALL, "verify", "train.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository whose commit trains with a network of another module."""
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    write(
        tmp_path,
        """
        from torch import nn


        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 1)

            def forward(self, x):
                return self.layer(x)
        """,
        "net.py",
    )
    write(
        tmp_path,
        """
        import torch
        from net import Net

        torch.manual_seed(1)
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(1000):
            optimizer.zero_grad()
            net(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
        """,
    )
    write(tmp_path, "rate: 1\n", "settings.yaml")
    commit(tmp_path)
    return tmp_path


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines on standard error, but for the one that comes on a slow machine."""
    return [line for line in done.stderr.splitlines() if not line.startswith("the first run")]


def test_a_slower_module_fails_and_is_a_row_of_a_table(project: Path) -> None:
    net = (project / "net.py").read_text(encoding="utf-8")
    slow = net.replace("        return", "        time.sleep(0.02)\n        return")
    write(project, f"import time\n{slow}", "net.py")
    write(project, "rate: 2\n", "settings.yaml")
    written = ("--output-format", "markdown", "--history", "all.jsonl", "--html", "page.html")
    short = ("--steps", "8", "--warmup", "2", "--rounds", "2")
    done = verify(project, "--against", "main", "--fail-slower", "5%", *short, *written)
    assert done.returncode == 1
    told = said(done)
    assert told[0].startswith("1 variant to compare, about 13 runs")
    assert told[1].startswith("the working tree: equal bit for bit (10 losses")
    assert [line.partition(": ")[0] for line in told[2:]] == ["round 1 of 2", "round 2 of 2"]
    head, row = (line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| "))
    assert head[:4] == ["| what", "verdict", "speed", "numbers"]
    assert row[:2] == ["| the working tree", "❌ slower"]
    assert row[3].startswith("equal bit for bit (10 losses")
    assert "the working tree against main (" in done.stdout
    assert "which both versions read as they are now: settings.yaml" in done.stdout
    (line,) = (project / "all.jsonl").read_text(encoding="utf-8").splitlines()
    report = json.loads(line)
    assert (report["against"]["name"], report["against"]["others"]) == ("main", ["settings.yaml"])
    assert report["variants"][0]["kind"] == "tree"
    assert report["variants"][0]["files"] == ["net.py"]
    named = {doubt["name"] for doubt in report["variants"][0]["doubts"]}
    assert named <= {"busy-machine"}
    assert "+        time.sleep(0.02)" in (project / "page.html").read_text(encoding="utf-8")


def test_where_nothing_differs_that_the_script_imports_nothing_is_measured(project: Path) -> None:
    write(project, "x = 1\n", "other.py")
    done = verify(project, "--against", "HEAD", "--steps", "8", "--warmup", "2")
    assert (said(done), done.returncode) == ([], 0)
    assert "Nothing to verify: no Python file that the script imports" in done.stdout
    assert "differs from HEAD." in done.stdout


def test_a_script_that_fails_in_the_revision_is_named_with_it(project: Path) -> None:
    net = (project / "net.py").read_text(encoding="utf-8")
    write(project, "raise ValueError('no')\n", "net.py")
    commit(project)
    write(project, net, "net.py")
    done = verify(project, "--against", "HEAD")
    assert done.returncode == 2
    assert said(done) == ["error: HEAD: net.py:1: the original script fails: ValueError: no"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--against", "gone"), "`--against gone`: git knows no such revision here"),
        (("--against", "--output"), "`--against --output`: git knows no such revision here"),
        (("--against", "main", "--apply"), "`--against` makes no fixes"),
        (("--fail-slower", "5%"), "`--fail-slower` needs `--against REVISION`"),
        (("--same-numbers",), "`--same-numbers` needs `--against REVISION`"),
        (("--against", "main", "--fail-slower", "x"), "`x` is not a percentage such as 5%"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    project: Path, arguments: tuple[str, ...], line: str
) -> None:
    done = verify(project, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_script_that_the_revision_does_not_have_is_one_line(project: Path) -> None:
    git(project, "mv", "train.py", "old.py")
    commit(project)
    git(project, "mv", "old.py", "train.py")
    done = verify(project, "--against", "HEAD")
    assert done.returncode == 2
    assert "`--against HEAD`: train.py does not exist in that revision" in done.stderr


@pytest.mark.parametrize(
    ("high", "tolerated", "fails"), [(0.97, 0.0, True), (0.97, 0.05, False), (0.94, 0.05, True)]
)
def test_a_slowdown_counts_beyond_what_is_tolerated(
    high: float, tolerated: float, fails: bool
) -> None:
    outcome = Outcome(TREE, Verdict.SLOWER, speedup=Speedup(high - 0.01, high - 0.02, high))
    report = Report(
        *("train.py", (), "cpu", "2.13", 0, 50, 10, 3, None, (outcome,)), tolerated=tolerated
    )
    assert report.failed is fails


def test_other_numbers_are_told_and_not_judged() -> None:
    match = ParameterMatch(True, 1, 1, 0.0)
    first = Trace("full", taken=2, losses=(1.0, 0.5), loss_steps=(0, 1), parameters=match)
    other = Trace("full", taken=2, losses=(1.0, 0.7), loss_steps=(0, 1), parameters=match)
    found = Parity(lambda *rest: first, first, lambda runs: True).compare(TREE, other)
    assert found is not None
    assert (found.word, found.kept, found.doubt, found.differs_at) == ("different", True, None, 1)
    restless = Parity(lambda *rest: other, first, lambda runs: True).compare(TREE, other)
    assert restless is not None
    assert (restless.word, restless.kept, restless.doubt) == ("not-compared", True, None)
    assert restless.note == "two runs of the original differ"


@pytest.mark.parametrize(
    ("file", "concerned"), [("/p/net.py", True), ("/p/other.py", False), ("/shared/x.py", True)]
)
def test_files_outside_of_the_project_may_always_be_imported(file: str, concerned: bool) -> None:
    original = Variant("all", (), ORIGINAL.safety, {file: ""})
    against = Against(Revision("main", "1a2b"), original, TREE)
    assert against.concerns(frozenset({"/p/train.py", "/p/net.py"}), Path("/p")) is concerned
