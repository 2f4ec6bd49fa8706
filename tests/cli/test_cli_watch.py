from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_shell import Shell
from cli_terminal import Terminal
from processes import interruptible, stopped

CLOCK = re.compile(r"^\[\d\d:\d\d:\d\d\] ")
WATCH = ("check", "--select", "XY", "--no-cache", "--output-format", "concise", "--watch")


@contextmanager
def watching(shell: Shell, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run torchlint with pipes, both outputs in one."""
    process = subprocess.Popen(
        [sys.executable, "-m", "torchlint", *arguments],
        cwd=shell.folder,
        env=shell.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=interruptible,
    )
    with stopped(process):
        yield process


def lines(process: subprocess.Popen[str], last: str) -> list[str]:
    """Read lines up to one that begins so."""
    assert process.stdout is not None
    read: list[str] = []
    for line in process.stdout:
        read.append(CLOCK.sub("", line.rstrip("\n")))
        if line.startswith(last):
            return read
    raise AssertionError(f"`{last}` does not come after {read}")


def replaced(file: Path, text: str) -> None:
    """Write a file as editors do: a new one takes its place."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def test_a_change_is_checked_and_an_interrupt_ends_it_without_a_word(shell: Shell) -> None:
    file = shell.write("a.py", "slow()\n")
    shell.write("notes.txt", "")
    with watching(shell, *WATCH) as process:
        assert lines(process, "Found") == [
            "Watching; Ctrl-C ends.",
            "a.py:1:1: XY201 [slow-call] high: `slow` takes its time: call `fast` (exact fix)",
            "Found 1 finding: 1 fixable with `torchlint fix --apply`.",
        ]
        shell.write("notes.txt", "slow()")
        shell.write("build/b.py", "slow()")
        replaced(file, "fast()\n")
        assert lines(process, "Nothing") == [
            "a.py changed. Watching; Ctrl-C ends.",
            "Nothing found in 1 file.",
        ]
        settings = shell.folder / "torchlint.toml"
        replaced(settings, "select = 1\n")
        assert lines(process, "error") == [
            "torchlint.toml changed. Watching; Ctrl-C ends.",
            f"error: {settings}:1: `select`: must be a list of strings",
        ]
        replaced(settings, "")
        lines(process, "Nothing")
        replaced(file, "heavy()\n")
        assert "a.py:1:1: XY401 [heavy-call]" in "\n".join(lines(process, "Found"))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert (process.returncode, out) == (0, "")


def test_fixes_are_made_as_files_are_saved(shell: Shell) -> None:
    file = shell.write("a.py", "heavy()\n")
    arguments = ("fix", "--select", "XY201", "--no-cache", "--apply", "--watch", "a.py")
    with watching(shell, *arguments) as process:
        lines(process, "Nothing to fix.")
        replaced(file, "slow()\n")
        lines(process, "Made 1 fix in 1 file.")
        assert file.read_text() == "fast()\n"


def test_the_screen_of_a_terminal_is_cleared_and_a_pipe_is_not(shell: Shell) -> None:
    file = shell.write("a.py", "slow()\n")
    with Terminal(shell, *WATCH) as terminal:
        assert terminal.wait_for("Watching").startswith("\x1b[2J\x1b[3J\x1b[H")
        terminal.wait_for("Found")
        replaced(file, "fast()\n")
        terminal.wait_for("\x1b[2J")
        terminal.wait_for("Nothing found")
        terminal.interrupt()
        code, rest = terminal.end()
    assert (code, rest) == (0, "\x1b[0m in 1 file.\r\n\r\n")
    with watching(shell, *WATCH) as process:
        assert "\x1b" not in "".join(lines(process, "Nothing"))


def test_what_cannot_be_watched_is_one_line(shell: Shell) -> None:
    done = shell.run("check", "-", "--watch")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: `--watch` looks at files, not at standard input\n"
    done = shell.run("check", "gone.py", "--watch")
    assert done.stderr == "error: gone.py does not exist: there is nothing to watch\n"


def test_without_watchfiles_it_is_said_how_to_install_it(shell: Shell) -> None:
    shell.write("watchfiles.py", "raise ImportError\n")
    path = os.pathsep.join([str(shell.folder), shell.environment()["PYTHONPATH"]])
    done = shell.run("check", "--watch", environment={"PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (2, "")
    assert "`pip install 'torchlint[watch]'` brings it" in done.stderr
    assert len(done.stderr.splitlines()) == 1
