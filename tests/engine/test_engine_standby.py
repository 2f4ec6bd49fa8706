"""A process that gets ready while another finds out what there is to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest

from torchlint.engine import FileResult, Project, check_paths
from torchlint.engine import jobs as work
from torchlint.engine.standby import Standby
from torchlint.registry import load_registry

FIXTURES: Final = Path(__file__).parents[2] / "fixtures" / "scripts"
ORPHANED: Final = """
import os
from torchlint.engine.standby import Standby
print(Standby().pid, flush=True)
os._exit(0)
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


@pytest.fixture
def standby() -> Iterator[Standby]:
    standby = Standby()
    yield standby
    standby.dismiss()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture(scope="module")
def files() -> list[Path]:
    return sorted(FIXTURES.glob("*/before.py"))[:12]


@pytest.fixture(scope="module")
def project() -> Project:
    return Project(load_registry(), {"select": ("ALL",)}, isolated=True)


@pytest.fixture(scope="module")
def alone(files: list[Path], project: Project) -> list[FileResult]:
    return list(check_paths(files, project, jobs=1))


@pytest.mark.parametrize("worth_forking", [0, 1 << 30])
def test_results_are_the_same(
    files: list[Path],
    project: Project,
    alone: list[FileResult],
    standby: Standby,
    worth_forking: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert any(each.findings for each in alone)
    monkeypatch.setattr(work, "WORTH_FORKING", worth_forking)
    assert list(check_paths(files, project, standby=standby)) == alone
    assert standby.is_working


@pytest.mark.parametrize("worth_forking", [0, 1 << 30])
@pytest.mark.parametrize("done", [0, 1, 5])
def test_what_a_process_that_died_had_not_done_is_done_here(
    files: list[Path],
    project: Project,
    alone: list[FileResult],
    standby: Standby,
    done: int,
    worth_forking: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work, "WORTH_FORKING", worth_forking)
    if not done:
        os.kill(standby.pid, signal.SIGKILL)
    results = check_paths(files, project, standby=standby)
    first = [next(results) for _ in range(done)]
    if done:
        os.kill(standby.pid, signal.SIGKILL)
    assert [*first, *results] == alone


def test_it_is_not_kept_where_there_is_nothing_to_do(
    tmp_path: Path, project: Project, standby: Standby
) -> None:
    file = tmp_path / "plain.py"
    file.write_text("x = 1\n")
    results = check_paths([file], project, standby=standby)
    assert (standby.pid, standby.is_working) == (0, False)
    assert [each.findings for each in results] == [()]


def test_one_process_is_one_process(
    files: list[Path], project: Project, alone: list[FileResult], standby: Standby
) -> None:
    results = check_paths(files, project, jobs=1, standby=standby)
    assert standby.pid == 0
    assert list(results) == alone


def test_results_that_nobody_wants_leave_no_process(
    files: list[Path], project: Project, standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "WORTH_FORKING", 0)
    results = check_paths(files, project, jobs=2, standby=standby)
    next(results)
    group = [child.pid for child in psutil.Process(standby.pid).children()]
    results.close()  # type: ignore[attr-defined]
    standby.dismiss()
    assert not _within_seconds(lambda: [pid for pid in group if _lives(pid)])


def test_it_ends_with_the_process_that_started_it() -> None:
    started = subprocess.run(
        [sys.executable, "-c", ORPHANED], capture_output=True, text=True, check=True, timeout=60
    )
    assert started.stderr == ""
    pid = int(started.stdout)
    assert not _within_seconds(lambda: [pid] if _lives(pid) else [])


def _within_seconds(look: Callable[[], list[int]], seconds: float = 30) -> list[int]:
    """Give what is still there after a while."""
    end = time.monotonic() + seconds
    while (found := list(look())) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
