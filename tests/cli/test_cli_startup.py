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
        "torchlint.cli.failure",
        "torchlint.cli.lazy",
        "torchlint.cli.program",
        "torchlint.report",
        "torchlint.report.escape",
    }


def test_a_file_that_no_rule_needs_is_not_parsed(shell: Shell) -> None:
    shell.write("a.py", "name = 'nothing of interest'\n")
    modules = imported(shell, "check", "--select", "XY,TL", "--no-cache")
    assert not {"libcst", "torch", "numpy", "rich", "torchlint_rules"} & modules


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
