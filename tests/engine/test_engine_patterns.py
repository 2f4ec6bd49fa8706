"""Which rules run on one file."""

from pathlib import Path

import pytest

from torchlint.config import Settings
from torchlint.config.settings import RESULTS_ONLY
from torchlint.engine.patterns import rules_here
from torchlint.registry import load_registry


def _codes(
    path: str, text: str = "", results_only: tuple[str, ...] = RESULTS_ONLY
) -> tuple[str, ...]:
    settings = Settings(root=Path("/home/tests/project"), results_only=results_only)
    return rules_here(path, text, load_registry().select(settings), settings).codes


@pytest.mark.parametrize(
    "path",
    ["tests/model.py", "pkg/testing/x/train.py", "convert_weights.py", "setup.py"],
)
def test_only_rules_about_results_run_beside_the_training(path: str) -> None:
    codes = _codes(f"/home/tests/project/{path}")
    assert {"TL001", "TL507"} <= set(codes)
    assert not {"TL201", "TL408", "TL601"} & set(codes)


@pytest.mark.parametrize("path", ["train.py", "latest.py", "pkg/convert.py", "test.py"])
def test_all_rules_run_on_the_training(path: str) -> None:
    assert {"TL201", "TL408", "TL507"} <= set(_codes(f"/home/tests/project/{path}"))


@pytest.mark.parametrize("path", ["test_net.py", "net_test.py"])
def test_a_test_is_named_like_one_and_holds_one(path: str) -> None:
    assert "TL201" not in _codes(f"/home/tests/project/{path}", "def test_it():\n    pass\n")
    assert "TL201" in _codes(f"/home/tests/project/{path}", "def test(net):\n    pass\n")
    called = "def test_it(net):\n    pass\ntest_it(1)\n"
    assert "TL201" in _codes(f"/home/tests/project/{path}", called)


def test_folders_above_the_root_do_not_count() -> None:
    assert "TL201" in _codes("/home/tests/other/train.py")


def test_the_list_can_be_emptied() -> None:
    assert "TL201" in _codes("/home/tests/project/tests/model.py", results_only=())


def test_a_pattern_with_a_slash_is_a_place() -> None:
    assert "TL201" not in _codes("/home/tests/project/old/a.py", results_only=("old/*.py",))
    assert "TL201" in _codes("/home/tests/project/new/old.py", results_only=("old/*.py",))
