from __future__ import annotations

import subprocess
import sys

import pytest
from cli_shell import Shell

from torchlint.engine.processes import can_fork, processors

LIST_MODULES = """\
import sys
from torchlint.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


LIST_FORKS = """\
import sys
sys.addaudithook(lambda event, _: print("forked", file=sys.stderr) if event == "os.fork" else None)
from torchlint.cli import main
main()
"""


def imported(shell: Shell, *arguments: str) -> set[str]:
    """Give the modules that a run imports."""
    done = subprocess.run(
        [sys.executable, "-c", LIST_MODULES, *arguments],
        cwd=shell.folder,
        env=shell.environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_program_alone_imports_click_and_no_command(shell: Shell, option: str) -> None:
    modules = imported(shell, option)
    assert "click" in modules
    assert {name for name in modules if name.startswith("torchlint.")} == {
        "torchlint.cli",
        "torchlint.cli.ends",
        "torchlint.cli.failure",
        "torchlint.cli.lazy",
        "torchlint.cli.printed",
        "torchlint.cli.program",
        "torchlint.cli.start",
        "torchlint.record",
        "torchlint.report",
        "torchlint.report.escape",
        "torchlint.settled",
    }


REPORTING = {
    "torchlint.finding",
    "torchlint.edit",
    "torchlint.report.card",
    "torchlint.report.entry",
    "torchlint.report.block",
    "torchlint.report.excerpt",
    "torchlint.report.fixdiff",
}
CHECKING = {
    "libcst",
    "torchlint.engine.checking",
    "torchlint.engine.fixing",
    "torchlint.engine.grading",
    "torchlint.engine.parsing",
    "torchlint.suppress",
    "torchlint_rules",
}
"""What a run imports only where it finds something, and where it asks rules."""
KEEPING = {"torchlint.engine.cache", "torchlint.engine.store"}
"""What a run imports only where something was parsed, now or before."""


def test_a_folder_without_files_needs_neither_a_file_nor_a_report(shell: Shell) -> None:
    modules = imported(shell, "check")
    engine = {"torchlint.source", "torchlint.engine.running", *KEEPING}
    assert not (REPORTING | CHECKING | engine | {"torchlint.engine.wildmatch"}) & modules


def test_a_file_that_no_rule_needs_is_not_parsed(shell: Shell) -> None:
    shell.write("a.py", "name = 'nothing of interest'\n")
    modules = imported(shell, "check", "--select", "XY,TL")
    assert "torchlint.engine.running" in modules
    assert not {"torch", "numpy", "rich", "torchlint.engine.wildmatch", *KEEPING} & modules
    assert not (REPORTING | CHECKING) & modules


def test_a_file_without_findings_in_the_cache_needs_only_the_cache(shell: Shell) -> None:
    shell.write("a.py", "slowly()\n")
    first, second = (imported(shell, "check", "--select", "XY201") for _ in "12")
    assert {"libcst", "torchlint.engine.checking"} <= first
    assert "torchlint.engine.cache" in second
    assert not CHECKING & second
    assert not {"torchlint.report.entry", "torchlint.report.block"} & second


def test_patterns_of_git_are_read_where_there_are_some(shell: Shell) -> None:
    shell.write(".gitignore", "*.pyc\n")
    assert "torchlint.engine.wildmatch" in imported(shell, "check")


def test_a_file_that_is_checked_needs_neither_torch_nor_rich(shell: Shell) -> None:
    shell.write("a.py", "slow()\n")
    modules = imported(shell, "check", "--select", "XY201", "--no-cache", "--jobs", "1")
    assert "libcst" in modules
    assert "tinypack.xy201_slow_call" in modules
    assert not {"libcst.matchers", "torch", "numpy", "rich", "watchfiles", "anyio"} & modules


@pytest.mark.parametrize("command", ["rules", "config"])
def test_the_other_commands_need_neither_torch_nor_rich(shell: Shell, command: str) -> None:
    assert not {"torch", "numpy", "rich"} & imported(shell, command)


def test_an_audit_needs_neither_torch_nor_rich(shell: Shell) -> None:
    shell.write("a.py", "import torch\n")
    assert not {"torch", "numpy", "rich", "libcst.matchers"} & imported(shell, "audit", "a.py")


@pytest.mark.skipif(
    processors() < 2 or not can_fork(), reason="there is but one process on this machine"
)
@pytest.mark.parametrize(
    ("arguments", "forks"),
    [
        ("check a.py", True),
        ("fix a.py", True),
        ("check --jobs 1 a.py", False),
        ("fix --jobs=1 a.py", False),
        ("check -", False),
        ("rules", False),
    ],
)
def test_files_are_checked_by_a_process_that_was_on_standby(
    shell: Shell, arguments: str, forks: bool
) -> None:
    shell.write("a.py", "slow()\n")
    done = subprocess.run(
        [sys.executable, "-c", LIST_FORKS, *arguments.split()],
        cwd=shell.folder,
        env=shell.environment(),
        input="slow()\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("forked" in done.stderr) == forks
    assert "slow" in done.stdout
