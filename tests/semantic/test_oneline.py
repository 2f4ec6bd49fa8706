"""Code as messages and comparisons have it: one line, no parentheses that nothing needs."""

from __future__ import annotations

import libcst as cst
import pytest

from torchlint.engine.parsing import parse_script, syntax_tree
from torchlint.semantic.scope.target import Target
from torchlint.semantic.script import Script
from torchlint.source import Source

CODE = {
    "f(a,  b)": "f(a,  b)",
    "f(\n    a,\n    b=3,\n)": "f(a, b=3)",
    "f(\r    a,\r    b\r)": "f(a, b)",
    "(\n    loss\n)": "loss",
    "((f)(x))": "(f)(x)",
    "(\n    out.eq(y)\n    .sum()\n    .item()\n)": "out.eq(y).sum().item()",
    "(\n    a +\n    b\n)": "(a + b)",
    "[\n    1,\n    2,\n]": "[1, 2]",
    "(\n    a,\n)": "(a,)",
    "x[\n    a,\n]": "x[a,]",
    "f(\n    (\n        a,\n    ),\n)": "f((a,))",
    "{\n    'a': 1,\n}": "{'a': 1}",
    "a \\\n    + b": "a + b",
    'f(\n    """two\nlines""",\n)': 'f("""two\nlines""")',
    "f(\n    f'({a}) {b})'\n    f'{{{c}}}'\n)": "f(f'({a}) {b})' f'{{{c}}}')",
    "()": "()",
    "(\n    ()\n)": "()",
    "f(\n    a,  # why\n)": "f(\n    a,  # why\n)",
    "(  # why\n    a\n)": "(  # why\n    a\n)",
}


def _script(text: str) -> Script:
    source = Source("example.py", text)
    return parse_script(source, Target(None, "auto"), syntax_tree(source))


@pytest.mark.parametrize("text", CODE)
def test_code_is_on_one_line_but_for_comments(text: str) -> None:
    script = _script(f"y = {text}\n")
    (line,) = script.tree.all(cst.Assign)
    assert script.code(line.value) == CODE[text]


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("f(x)", "f(x)"),
        ("((f)(x))", "(f)(x)"),
        ("(  # (\n    a.b(  x )  # )\n)", "a.b(  x )"),
        ("((\n    a\n    .b\n))", "a\n    .b"),
    ],
)
def test_bare_characters_are_those_between_the_parentheses(text: str, inner: str) -> None:
    script = _script(f"y = {text}\n")
    (line,) = script.tree.all(cst.Assign)
    span = script.tree.bare(line.value)
    assert script.source.text[span.start : span.end] == inner


def test_an_argument_needs_no_parentheses() -> None:
    script = _script("f(x=(\n    a + b\n))\n")
    (arg,) = script.tree.all(cst.Arg)
    assert (script.tree.argument(arg.value), script.code(arg.value), script.code(arg)) == (
        "a + b",
        "(a + b)",
        "x=a + b",
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("loss.item()", "loss.item()"),
        (f"first.second({'a' * 60})", "first.second(...)"),
        (f"first.second({'a' * 60}).third()", "first.second(...).third()"),
        (f"first.{'second' * 12}(1).third(2)", ".third(...)"),
        (f"[{'a' * 60}]", f"[{'a' * 56}..."),
    ],
)
def test_messages_cut_long_code(text: str, told: str) -> None:
    script = _script(f"y = {text}\n")
    (line,) = script.tree.all(cst.Assign)
    assert script.tree.brief(line.value) == told


def test_statements_that_share_a_line_are_told_apart() -> None:
    script = _script("if x: a = 1; f(b); break\nfor y in z:\n    c = 2; g(d)\n    h(e)\n")
    beside = {
        script.code(call): [script.code(each) for each in script.tree.beside(call)]
        for call in script.tree.all(cst.Call)
    }
    assert beside == {
        "f(b)": ["a = 1", "f(b)", "break"],
        "g(d)": ["c = 2", "g(d)", "h(e)"],
        "h(e)": ["c = 2", "g(d)", "h(e)"],
    }
