"""Where a script has its brackets and line ends changes neither what is found nor the fix.

Every reported example of every rule is laid out in two other ways, the next example in the next
two: as formatters do it, twice over, and as nobody does it. Silent ones take turns with these.
Nothing more is said of it, nothing over several lines, and every fix that is made is one that the
engine takes: it compiles and keeps all comments. In the layouts of formatters nothing less is said,
and a fix does the same or is left out.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest import mock

import libcst as cst
import pytest
from layouts import LAYOUTS

from torchlint.config import Settings
from torchlint.engine import FileResult, FixResult, check_source, fix_source, fixing
from torchlint.engine.fixing import unchanged
from torchlint.registry import Registry, Selection, load_registry
from torchlint.source import Source
from torchlint.testing import Example, examples_of

REGISTRY: Registry = load_registry()
CODES = [head.code for head in REGISTRY.select(Settings(select=("ALL",))) if head.code != "TL002"]
"""All but the one that judges comments by their lines."""


class Looked(NamedTuple):
    """What is found in a script, and what becomes of it."""

    found: FileResult
    fixed: FixResult


FORMATTED = ("calls", "chains", "arguments", "values", "windows")
"""Layouts that formatters and editors make; nobody has the others everywhere."""

OTHERS = tuple(layout for layout in LAYOUTS if layout not in FORMATTED)

BY_LAYOUT = {
    ("TL201", "predictions as lists: unsafe, they stay in GPU memory meanwhile"),
    ("TL204", "three on a line that becomes too long"),
    ("TL204", "a cast in front of the copy, whose result is not pinned"),
    ("TL307", "a line of its own where one would become too long"),
    ("TL307", "a function that nothing calls has another layout"),
    ("TL408", "volatile has no effect, comments stay: reported"),
}
"""Examples of which the layout decides what the fix is: how wide it is, where a comment stands."""

SILENT = {
    ("TL310", "a scale that is a tensor for no reason"),
    ("TL509", "squares summed for the loss: reported"),
}
"""Examples whose finding other parentheses hide."""


@pytest.mark.parametrize("code", CODES)
def test_another_layout_gets_the_same_findings_and_fixes(code: str) -> None:
    for number, example in enumerate(examples_of(REGISTRY.find(code).load())):
        rules = REGISTRY.select(Settings(select=(code, *example.beside)))
        plain = _look(example.before, rules, example)
        for layouts in _layouts(number, bool(plain.found.findings)):
            text = _laid_out(example.before, layouts)
            if text is not None:
                _compare(plain, _look(text, rules, example), (code, example.sentence), layouts)


def _layouts(number: int, is_reported: bool) -> tuple[tuple[str, ...], ...]:
    """Return the layouts of an example: two of formatters, one on the other, and another."""
    first = FORMATTED[number % len(FORMATTED)]
    second = FORMATTED[(number + 2) % len(FORMATTED)]
    both = (first, second), (OTHERS[number % len(OTHERS)],)
    return both if is_reported else (both[number // len(OTHERS) % 2],)


def _look(text: str, rules: Selection, example: Example) -> Looked:
    source = Source("example.py", text)
    found = check_source(source, rules, example.settings)
    if not any(each.fix for each in found.findings):
        return Looked(found, unchanged(found))

    def checked(of: Source, *rest: Any) -> FileResult:
        return found if of == source else check_source(of, *rest)

    with mock.patch.object(fixing, "check_source", checked):  # the first is the one that was made
        return Looked(found, fix_source(source, rules, example.settings))


def _laid_out(text: str, layouts: Sequence[str]) -> str | None:
    """Write a script in other layouts; None where that changes nothing, or what it does."""
    try:
        made = text
        for layout in layouts:
            made = LAYOUTS[layout](made)
        return made if made != text and _same(made, text) else None
    except (SyntaxError, cst.ParserSyntaxError, cst.CSTValidationError):  # as some examples are
        return None


def _same(first: str, second: str) -> bool:
    return ast.dump(ast.parse(first)) == ast.dump(ast.parse(second))


def _compare(plain: Looked, other: Looked, key: tuple[str, str], layouts: Sequence[str]) -> None:
    text, done = other.fixed.before.text, other.fixed.after.text
    where = f"{key}, {layouts}:\n{text}\n{done}"
    assert other.found.is_whole, where
    assert other.fixed.is_whole, where
    assert not [line for line in _said(other.found) if "\n" in line], where
    if "attributes" not in layouts:
        assert Counter(_codes(other.found)) <= Counter(_codes(plain.found)), where
    if not set(layouts) <= set(FORMATTED):
        return
    assert key in SILENT or _codes(other.found) == _codes(plain.found), where
    assert key in BY_LAYOUT or done == text or _same(done, plain.fixed.after.text), where


def _said(result: FileResult) -> list[str]:
    """Return what is said of a file and of its fixes."""
    told = [each.message for each in result.findings]
    return told + [each.fix.title for each in result.findings if each.fix is not None]


def _codes(result: FileResult) -> list[str]:
    return sorted(each.code for each in result.findings)


CHAINS = """\
import torch
@torch.no_grad()
def evaluate(model, loader):
    correct = top = 0
    for x, y in loader:
        pred = model(x.cuda())
        correct += int(
            pred.eq(y.cuda())
            .sum()
        )
        top += (
            pred.eq(y.cuda())
            .sum()
            .item()
        )
    return correct / len(loader.dataset), top
"""
SUMS = """\
        correct += (pred.eq(y.cuda())
            .sum())
        top += (
            pred.eq(y.cuda())
            .sum()
        )
    correct = int(correct)
    top = int(top)
"""


def test_lines_stay_as_they_are_between_the_brackets_that_hold_them() -> None:
    rules = REGISTRY.select(Settings(select=("TL202",)))
    fixed = fix_source(Source("evaluate.py", CHAINS), rules, Settings())
    assert SUMS in fixed.after.text
