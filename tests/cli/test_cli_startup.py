from __future__ import annotations

import subprocess
import sys

import pytest
from cli_shell import Shell

LIST_MODULES = """\
import sys
from torchlint.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def imported(shell: Shell, *arguments: str) -> set[str]:
    """Return the modules that a run imports."""
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
        "torchlint.cli.terminal",
        "torchlint.cli.program",
        "torchlint.cli.replay",
        "torchlint.cli.start",
        "torchlint.report",
        "torchlint.report.text",
        "torchlint.timestamps",
    }


REPORTING = {
    "torchlint.report.card",
    "torchlint.report.entry",
    "torchlint.report.block",
    "torchlint.report.fixdiff",
}
"""What a run imports only if it finds something."""
RULES = {
    "libcst",
    "torchlint.engine.checking",
    "torchlint.engine.fixing",
    "torchlint.semantic.script",
    "torchlint.suppress",
    "torchlint_rules",
}
"""What a run imports only if a file must be parsed."""


def test_a_folder_without_files_needs_neither_rules_nor_a_report(shell: Shell) -> None:
    modules = imported(shell, "check")
    assert not (REPORTING | RULES | {"pathspec"}) & modules


def test_a_file_that_no_rule_needs_is_not_parsed(shell: Shell) -> None:
    shell.write("a.py", "name = 'nothing of interest'\n")
    modules = imported(shell, "check", "--select", "XY,TL")
    assert "torchlint.engine.running" in modules
    assert not {"torch", "numpy", "rich", "pathspec"} & modules
    assert not (REPORTING | RULES) & modules


def test_a_file_without_findings_in_the_cache_needs_no_rules(shell: Shell) -> None:
    shell.write("a.py", "slowly()\n")
    first, second = (imported(shell, "check", "--select", "XY201") for _ in "12")
    assert "libcst" in first
    assert not RULES & second
    assert not {"torchlint.report.entry", "torchlint.report.block"} & second


def test_patterns_of_git_are_read_where_there_are_some(shell: Shell) -> None:
    shell.write(".gitignore", "*.pyc\n")
    shell.write("a.py", "")
    assert "pathspec" in imported(shell, "check")


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
