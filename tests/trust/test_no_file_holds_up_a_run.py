"""A file whose analysis does not end is given up with one line, and the run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from editor import PATIENCE, editor
from pack_pages import page

from torchlint.engine.timelimit import within

PACK = '''
"""A rule of a pack."""

from torchlint.api import Rule


class Endless(Rule):
    def check(self, script):
        text = script.source.text
        while "endless" in text:
            pass
        if "compiled" in text:
            sum(iter(int, 1))
        while "deaf" in text:
            try:
                while True:
                    pass
            except BaseException:
                text = "endless" if "deaf" in text else ""
                while text:
                    pass
        if "deep" in text:
            list(self.check(script))
        return
        yield
'''
SCRIPT = "import torch\n\ntorch.autograd.set_detect_anomaly(True)\n"
LINE = "warning: {} took more than 2 CPU seconds"
FORKED = "# " + "x" * 60_000 + "\n"
"""What makes a file large enough for a run over several processes."""
needs_timers = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="this system has neither fork nor interval timers"
)
pytestmark = needs_timers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a script on which a rule of a pack does not end, between two others."""
    info = tmp_path / "site" / "xyzpack-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: xyzpack\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torchlint.rules]\nxyz = xyzpack\n")
    (info.parent / "xyzpack").mkdir()
    (info.parent / "xyzpack" / "__init__.py").write_text("")
    (info.parent / "xyzpack" / "xyz101_endless.py").write_text(PACK)
    needs = "[endless, compiled, deaf, deep]"
    text = page("XYZ101", "endless", about="[anomaly]", needs=needs)
    (info.parent / "xyzpack" / "xyz101_endless.md").write_text(text)
    (tmp_path / "a.py").write_text(SCRIPT)
    (tmp_path / "b.py").write_text(SCRIPT + "# endless\n")
    (tmp_path / "c.py").write_text(SCRIPT)
    return tmp_path


def _run(folder: Path, command: str, *arguments: str, text: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "torchlint", command, *arguments, "--file-timeout", "2"],
        cwd=folder,
        env=_environment(folder),
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(folder / "site"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def _checked(folder: Path, *arguments: str) -> tuple[list[str], list[str]]:
    """Check the three files; give the files with findings, and the lines on standard error."""
    (folder / "torchlint.toml").write_text("no-cache = true\n")
    arguments = ("--output-format", "concise", "--quiet", *arguments, "a.py", "b.py", "c.py")
    code, out, err = _run(folder, "check", *arguments)
    assert code == 1
    return [line.split(":")[0] for line in out.splitlines()], err.splitlines()


@pytest.mark.parametrize(("jobs", "needed"), [("1", "deaf"), ("2", "endless")])
def test_a_rule_that_never_ends(folder: Path, jobs: str, needed: str) -> None:
    for file in folder.glob("*.py"):
        file.write_text(file.read_text() + FORKED)
    (folder / "b.py").write_text(f"{SCRIPT}# {needed}\n{FORKED}")
    found, (line,) = _checked(folder, "--jobs", jobs)
    assert found == ["a.py", "c.py"]
    assert line == (
        f"{LINE.format('b.py')} (XYZ101 was running) and was skipped: exclude it with `exclude` "
        "or raise `file-timeout` (please report)"
    )


def test_compiled_code_that_never_ends_in_a_process_of_its_own(folder: Path) -> None:
    for file in folder.glob("*.py"):
        file.write_text(file.read_text() + FORKED)
    (folder / "b.py").write_text(f"{SCRIPT}# compiled\n{FORKED}")
    found, (line,) = _checked(folder, "--jobs", "2")
    assert found == ["a.py", "c.py"]
    assert line.startswith(f"{LINE.format('b.py')} and was skipped")


def test_calls_that_go_too_deep_cost_the_rule_alone(folder: Path) -> None:
    (folder / "b.py").write_text(SCRIPT + "# deep\n")
    found, (line,) = _checked(folder)
    assert found == ["a.py", "b.py", "c.py"]
    assert line.startswith(
        "warning: internal error in XYZ101 on b.py (please report): RecursionError"
    )
    assert line.endswith("other rules ran")


def test_a_file_that_is_nested_too_deeply_is_no_error_of_the_rule(folder: Path) -> None:
    (folder / "b.py").write_text(f"{SCRIPT}total = {' + '.join('1' * 200)}  # deep\n")
    found, (line,) = _checked(folder)
    assert found == ["a.py", "b.py", "c.py"]
    assert line == "warning: b.py is nested too deeply for XYZ101; other rules ran"


def test_fix_leaves_the_file_as_it_is(folder: Path) -> None:
    code, _, err = _run(folder, "fix", "--apply", "--no-cache", "--quiet", "a.py", "b.py", "c.py")
    assert code == 0
    assert err.startswith(LINE.format("b.py"))
    assert "anomaly" in (folder / "b.py").read_text()
    assert "anomaly" not in (folder / "a.py").read_text() + (folder / "c.py").read_text()


def test_standard_input(folder: Path) -> None:
    text = SCRIPT + "# endless é\n"
    code, out, err = _run(folder, "fix", "--apply", "-", text=text)
    assert (code, out) == (0, text)
    assert err.startswith(LINE.format("-"))


def test_audit(folder: Path) -> None:
    code, out, err = _run(folder, "audit", "b.py", "c.py")
    assert code == 2
    assert err.startswith(LINE.format("b.py").replace("warning", "error"))
    assert "c.py" in out


def test_an_editor_hears_of_the_next_document(folder: Path) -> None:
    (folder / "torchlint.toml").write_text("file-timeout = 2\n")
    with editor(environment=_environment(folder)) as opened:
        opened.initialize(folder)
        first, following = ((folder / name).as_uri() for name in ("b.py", "c.py"))
        opened.open(first, SCRIPT + "# endless\n")
        said = opened.messages.get(timeout=PATIENCE)
        assert "b.py took more than 2 CPU seconds (XYZ101 was running)" in said
        opened.open(following, SCRIPT)
        assert [each.code for each in opened.diagnostics(following).diagnostics] == ["TL801"]


def test_the_main_thread_is_as_it_was() -> None:
    assert within(0.05, "x.py", _endless, str.upper).startswith("X.PY TOOK MORE THAN 0.05 CPU S")
    assert within(0.05, "x.py", lambda: "done", str.upper) == "done"
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass


def test_another_thread_is_as_it_was() -> None:
    said: list[str] = []

    def work() -> None:
        said.append(within(0.05, "x.py", _endless, str.upper))
        for _ in range(100):
            within(0.02, "x.py", lambda: str(sum(range(500_000))), str.upper)
        said.append(within(5, "x.py", lambda: "done", str.upper))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert said[0].startswith("X.PY TOOK MORE THAN 0.05 CPU S")
    assert said[1:] == ["done"]


TRACED = """
import sys, threading
from torchlint.engine.timelimit import within

def endless():
    while True:
        pass

def work():
    within(5, "x.py", lambda: "done", str)
    within(0.05, "x.py", endless, str)

thread = threading.Thread(target=work)
thread.start()
thread.join()
sys.settrace(lambda *event: None)
(lambda: None)()
print("traced")
"""


def test_a_debugger_goes_on_after_another_thread_was_limited() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == "traced\n"


def _endless() -> str:
    while True:
        pass
