"""Every expectation in `cases/` against the semantic model."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import libcst as cst
import pytest
from semantic.answers import answer
from semantic.expectations import Expectation, expectations

from torchlint.semantic.script import Script
from torchlint.source import Source

CASES = Path(__file__).parent / "cases"
FILES = sorted(CASES.glob("*.py"))


@cache
def script_of(path: Path) -> Script:
    """Read a case file once for all its expectations."""
    return Script.parse(Source.from_bytes(path.read_bytes(), str(path)))


@pytest.mark.parametrize("asked", [each for path in FILES for each in expectations(path)], ids=str)
def test_line(asked: Expectation) -> None:
    assert answer(script_of(asked.path), asked) == asked.expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_is_python_and_expects_something(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"))
    assert list(expectations(path))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_answers_do_not_depend_on_the_order_of_the_questions(path: Path) -> None:
    source = Source.from_bytes(path.read_bytes(), str(path))
    first, second = Script.parse(source), Script.parse(source)
    forwards = [first.kind(name).name for name in first.tree.all(cst.Name)]
    backwards = [second.kind(name).name for name in reversed(second.tree.all(cst.Name))][::-1]
    names = [
        f"{name.value} on line {source.position(first.span(name).start).row}"
        for name in first.tree.all(cst.Name)
    ]
    assert list(zip(names, forwards, strict=True)) == list(zip(names, backwards, strict=True))


def test_trailing_comment_that_expects_nothing_is_an_error(tmp_path: Path) -> None:
    case = tmp_path / "case.py"
    case.write_text("for x in loader:  # roel: OTHER\n    pass\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"case\.py:1: no expectation"):
        list(expectations(case))
