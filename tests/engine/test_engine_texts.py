from __future__ import annotations

import doctest
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from notebook_samples import code, notebook
from tiny_rules import broken

import torchlint
from torchlint.engine import texts
from torchlint.registry import Registry, RuleHead

OLD = "import torch\nx.cuda(async=True)\n"
HOOKED = """\
import torch
net = torch.nn.Linear(3, 3)
net.register_forward_hook(print)
net.forward(x)
"""
TRACED = "import torch\ntorch.autograd.set_detect_anomaly(True)\ntorch.ones(3).sum()\n"
TOP = Path(torchlint.__path__[0]).parent


def test_the_public_names() -> None:
    assert torchlint.__all__ == [
        "AppliedFix",
        "CheckError",
        "ConfigError",
        "Diagnostic",
        "DiagnosticFix",
        "DiagnosticNote",
        "FixedSource",
        "Position",
        "TextEdit",
        "__version__",
        "check",
        "fix",
    ]
    assert dir(torchlint) == torchlint.__all__
    assert all(getattr(torchlint, name).__doc__ for name in torchlint.__all__)
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        torchlint.chek  # noqa: B018


def test_a_text_is_checked() -> None:
    (found,) = torchlint.check(TRACED, filename="train.py")
    assert (found.code, found.name, found.cell) == ("TL801", "anomaly-detection", None)
    assert (found.filename, found.location, found.end_location) == (
        "train.py",
        torchlint.Position(2, 1),
        torchlint.Position(2, 40),
    )
    assert found.fix == torchlint.DiagnosticFix(
        "Remove the anomaly detection",
        "exact",
        "",
        (torchlint.TextEdit("", torchlint.Position(2, 1), torchlint.Position(3, 1)),),
    )
    assert torchlint.check(TRACED, ignore="TL8") == []
    assert torchlint.check(TRACED, select=["TL1", "TL2"]) == []
    assert torchlint.check(TRACED, select=()) == []


def test_what_does_not_parse_is_a_finding() -> None:
    assert [each.code for each in torchlint.check(OLD)] == ["TL001"]
    (found,) = torchlint.check(OLD.encode("latin-1") + b"# \xe9")
    assert (found.code, found.location) == ("TL001", torchlint.Position(3, 1))
    assert torchlint.fix(OLD).text == OLD.replace("async", "non_blocking")


def test_a_text_is_fixed() -> None:
    fixed = torchlint.fix(TRACED + "x = 1  # noqa: TL999\r\n", select=["TL002", "TL801"])
    assert fixed.text == "import torch\ntorch.ones(3).sum()\nx = 1\r\n"
    assert fixed.changed
    assert fixed.remaining == ()
    assert {(each.code, each.name, each.safety, each.because) for each in fixed.applied} == {
        ("TL002", "unused-suppression", "exact", ""),
        ("TL801", "anomaly-detection", "exact", ""),
    }
    assert torchlint.fix(b"\xef\xbb\xbfx = 1  # noqa: TL999\r\n").text == "x = 1\r\n"


def test_unsafe_fixes_are_made_when_asked_for() -> None:
    text = HOOKED
    kept = torchlint.fix(text, select="TL403")
    assert (kept.text, kept.changed, kept.applied) == (text, False, ())
    assert [each.fix.safety for each in kept.remaining if each.fix] == ["unsafe"]
    assert "net(x)" in torchlint.fix(text, select="TL403", unsafe_fixes=True).text
    assert "net(x)" in torchlint.fix(text, select="TL403", config={"unsafe-fixes": True}).text


def test_notes_and_cells_of_a_notebook() -> None:
    text = notebook(code("import torch"), code("torch.autograd.set_detect_anomaly(True)\ntorch"))
    (found,) = torchlint.check(text, filename="a.ipynb")
    assert (found.cell, found.location) == (2, torchlint.Position(1, 1))
    assert found.fix is not None
    assert [edit.cell for edit in found.fix.edits] == [2]
    fixed = torchlint.fix(text, filename="a.ipynb")
    assert [cell["source"] for cell in json.loads(fixed.text)["cells"]] == [
        ["import torch"],
        ["torch"],
    ]
    assert [each.code for each in torchlint.check("{}", filename="a.ipynb")] == ["TL001"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"select": "TLX"}, "select: unknown code or name `TLX`"),
        ({"ignore": ["TL801", "anomaly"]}, "ignore: unknown code or name `anomaly`"),
        ({"target_torch": "new"}, "target_torch: `new` is not a version of torch"),
        ({"target_device": "gpu"}, "target_device: `target-device`: "),
        ({"config": {"selct": []}}, "config: unknown key `selct`, did you mean `select`?"),
        ({"config": {"select": "TL1"}}, "config: `select`: must be a list of strings"),
    ],
)
def test_a_wrong_setting_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(torchlint.ConfigError) as caught:
        torchlint.check(TRACED, **given)
    assert caught.value.message.startswith(said)


@contextmanager
def _with_registry(registry: Registry) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "_registry", lambda: registry)
        yield


def test_a_rule_that_fails_is_an_error_that_has_what_the_others_found() -> None:
    heads = (*texts._registry().rules, RuleHead.of(broken("torch")))
    with _with_registry(Registry(heads, ("rule pack `x` is broken",))):
        with pytest.raises(torchlint.CheckError) as caught:
            torchlint.check(TRACED, extend_select="ALL")
        assert [each.code for each in caught.value.remaining] == ["TL801"]
        assert caught.value.errors[0] == "rule pack `x` is broken"
        assert caught.value.errors[1].startswith("internal error in ")
        with pytest.raises(torchlint.CheckError) as caught:
            torchlint.fix(TRACED)
        assert caught.value.fixed is not None
        assert caught.value.fixed.text == TRACED.replace(TRACED.splitlines()[1] + "\n", "")


def test_the_examples_of_the_docstrings() -> None:
    done = doctest.testmod(texts)
    assert (done.failed, done.attempted > 6) == (0, True)


def test_a_folder_with_settings_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchlint.toml").write_text("ignore = ['ALL']\nthis is no TOML")
    monkeypatch.chdir(tmp_path)
    assert torchlint.check(TRACED, filename=str(tmp_path / "train.py"))
    assert torchlint.fix(TRACED, filename="train.py").changed
    assert [file.name for file in tmp_path.iterdir()] == ["torchlint.toml"]


def test_importing_the_package_imports_nothing_else() -> None:
    program = (
        "import torchlint, sys; "
        "print([m for m in sys.modules if m.startswith(('torchlint.', 'libcst', 'click'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=TOP
    )
    assert done.stdout.strip() == "[]"


def test_the_wheel_says_that_it_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="builds a wheel with hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, capture_output=True, check=True, cwd=TOP)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "torchlint/py.typed" in names
    assert "torchlint/notebook/notebook.py" in names
