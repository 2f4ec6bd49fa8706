"""`check`, `fix` and the rest on a system that has neither fork nor the signals of Unix.

This is what Windows lacks; the names are taken away from the modules before torchlint starts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from editor import editor

BARE = """\
import os, signal, sys

KEPT = {"SIGINT", "SIGTERM", "SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIG_DFL", "SIG_IGN"}
for name in ("fork", "forkpty", "killpg", "setsid", "getpgid", "mkfifo", "getuid", "geteuid",
             "fchmod", "chown", "register_at_fork", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
for name in list(vars(signal)):
    if name.startswith(("SIG", "ITIMER")) and name not in KEPT:
        delattr(signal, name)
for name in ("setitimer", "getitimer", "alarm", "pause", "pthread_kill", "pthread_sigmask"):
    if hasattr(signal, name):
        delattr(signal, name)
for name in ("resource", "fcntl", "termios", "pwd", "grp", "pty", "tty"):
    sys.modules[name] = None

from torchlint.cli import main

sys.exit(main())
"""
SLOW = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project of several files, which many processes would share elsewhere."""
    folder = tmp_path / "project"
    folder.mkdir()
    for number in range(40):
        (folder / f"train{number}.py").write_text(SLOW + f"seed = {number}\n", encoding="utf-8")
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BARE, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_check_reports_with_several_jobs_and_from_the_cache(project: Path) -> None:
    for _ in range(2):
        done = run(project, "check", "--jobs", "4", "--output-format", "concise")
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.count(" TL801 ") == 40
    again = run(project, "check", "--no-cache", "--isolated", "--no-program")
    assert again.returncode == 1


def test_fix_prints_and_writes(project: Path) -> None:
    shown = run(project, "fix", "--jobs", "4")
    assert shown.returncode == 1
    assert shown.stdout.count("-torch.autograd.set_detect_anomaly(True)\n") == 40
    assert run(project, "fix", "--apply").returncode == 0
    assert "anomaly" not in (project / "train7.py").read_text(encoding="utf-8")
    assert run(project, "check").returncode == 0


@pytest.mark.parametrize("words", ["audit train0.py", "rules", "explain TL801", "config", "clean"])
def test_the_other_commands_that_run_no_script_work(project: Path, words: str) -> None:
    done = run(project, *words.split())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["verify", "tune"])
def test_what_runs_scripts_says_in_one_line_that_it_cannot(project: Path, command: str) -> None:
    done = run(project, command, "train0.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: {command} runs scripts on Linux and macOS only; "
        "`check`, `fix` and `audit` work here\n"
    )
    assert run(project, command, "--help").returncode == 0


def test_the_server_shows_findings_and_fixes_them(project: Path) -> None:
    with editor(program=("-c", BARE)) as opened:
        opened.initialize(project)
        uri = (project / "train0.py").as_uri()
        opened.open(uri, SLOW)
        (found,) = opened.diagnostics(uri).diagnostics
        assert found.code == "TL801"
        (fix_all,) = opened.actions(uri, found.range, "source.fixAll")
        assert opened.wait(opened.client.code_action_resolve_async(fix_all)).edit is not None
        opened.change(uri, "import torch\n", 2)
        assert not opened.diagnostics(uri).diagnostics
