from __future__ import annotations

import subprocess
import sys

import pytest

import torchlint
from torchlint.config import ConfigError

OLD = "import torch\nx.cuda(async=True)\n"


def test_a_text_is_checked() -> None:
    (found,) = torchlint.check(OLD, "old.py").findings
    assert found.code == "TL001"
    assert torchlint.check(OLD.encode("latin-1") + b"# \xe9").findings[0].code == "TL001"
    assert torchlint.check(OLD, ignore=("TL001",)).findings == ()


def test_a_text_is_fixed() -> None:
    result = torchlint.fix("x = 1  # noqa: TL999\n", "a.py", select=("TL002",))
    assert result.after.text == "x = 1\n"
    assert torchlint.fix(b"x = 1  # noqa: TL999\r\n").after.to_bytes() == b"x = 1\r\n"


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown code or name `TLX`"):
        torchlint.check(OLD, select=("TLX",))


def test_the_package_has_what_it_says() -> None:
    assert dir(torchlint) == ["__version__", "check", "fix"]
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        torchlint.chek  # noqa: B018


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import torchlint, sys; print([m for m in sys.modules if m.startswith('torchlint.')])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=_TOP
    )
    assert done.stdout.strip() == "[]"


_TOP = torchlint.__path__[0] + "/.."
