"""The command `torchlint server` itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_PYGLS = """\
import sys
sys.modules["pygls"] = None
from torchlint.cli import main
main(["server"])
"""
MODULES = """\
import sys
from torchlint.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_extra_one_line_says_what_to_install() -> None:
    done = _python("-c", WITHOUT_PYGLS)
    assert done.returncode == 2
    assert done.stderr == (
        "error: `torchlint server` needs pygls: `pip install 'torchlint[lsp]'` brings it\n"
    )


@pytest.mark.parametrize("arguments", [("server",), ("--help",), ("rules",)])
def test_only_the_server_imports_pygls(arguments: tuple[str, ...]) -> None:
    modules = _python("-c", MODULES, *arguments).stderr.splitlines()[-1].split()
    assert ("pygls" in modules) is (arguments == ("server",))
    assert not {"torch", "numpy", "rich"} & set(modules)
