"""Every method of Rewrite: what its edits make of a text, in any layout."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Sequence
from typing import TypeVar

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlint.edit import apply_edits
from torchlint.semantic.edits.rewrite import Edits
from torchlint.semantic.script import Script
from torchlint.source import Source

NodeT = TypeVar("NodeT", bound=cst.CSTNode)


def _script(text: str) -> Script:
    return Script.parse(Source("train.py", text))


def _only(script: Script, kind: type[NodeT]) -> NodeT:
    (found,) = script.tree.all(kind)
    return found


def _made(script: Script, edits: Edits | None) -> str:
    assert edits is not None
    return apply_edits(script.source.text, edits)


def _lines(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def _change(text: str, edit: Callable[[Script], Edits | None]) -> str:
    script = _script(text)
    made = _made(script, edit(script))
    compile(made, "train.py", "exec")
    return made


# -- places -------------------------------------------------------------------


def test_lines_begin_and_end_where_the_file_breaks_them() -> None:
    script = _script("a = 1\r\nb = 2\r\n")
    rewrite = script.edits
    at = script.source.text.index("b")
    assert (rewrite.line_start(at), rewrite.line_end(at), rewrite.after_line(at)) == (7, 12, 14)
    assert rewrite.newline == "\r\n"


def test_the_last_line_may_lack_an_end() -> None:
    rewrite = _script("a = 1").edits
    assert (rewrite.line_start(3), rewrite.line_end(3), rewrite.after_line(3)) == (0, 5, 5)


def test_indent_of() -> None:
    script = _script("if 1:\n\tx = 1\n")
    assert script.edits.indent_of(_only(script, cst.Assign)) == "\t"


@pytest.mark.parametrize(
    ("text", "alone"),
    [("x = 1\n", True), ("x = 1; y()\n", False), ("if 1: x = 1\n", False)],
)
def test_stands_alone(text: str, alone: bool) -> None:
    script = _script(text)
    line = script.tree.parent(_only(script, cst.Assign))
    assert line is not None
    assert script.edits.stands_alone(line) is alone


# -- expressions --------------------------------------------------------------


def test_replace_takes_the_parentheses_of_a_node_too() -> None:
    made = _change(
        "x = ((a) + b)\n", lambda s: s.edits.replace(s.tree.all(cst.Assign)[0].value, "c")
    )
    assert made == "x = c\n"


def test_insert_and_delete() -> None:
    assert _change("x = 1\n", lambda s: s.edits.insert(4, "-")) == "x = -1\n"
    assert _change("x = -1\n", lambda s: s.edits.delete(4, 5)) == "x = 1\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()\n", "f(k=1)\n"),
        ("(f())\n", "(f(k=1))\n"),
        ("f(a)\n", "f(a, k=1)\n"),
        ("f(a, )\n", "f(a, k=1, )\n"),
        ("f(a, b=2)\n", "f(a, b=2, k=1)\n"),
        ("f(\n    a,\n    b,\n)\n", "f(\n    a,\n    b,\n    k=1,\n)\n"),
        ("f(\n    a,\n    b\n)\n", "f(\n    a,\n    b,\n    k=1\n)\n"),
        ("f(\n    a,\n    b,  # why\n)\n", "f(\n    a,\n    b,  # why\n    k=1,\n)\n"),
        ("f(\n    a,\n    b  # why\n)\n", "f(\n    a,\n    b,  # why\n    k=1\n)\n"),
        (f"f({'a' * 94}, b)\n", f"f({'a' * 94}, b,\n  k=1)\n"),
        (f"f({'a' * 89}, b)\n", f"f({'a' * 89}, b, k=1)\n"),
        (f"f(\n\ta, {'a' * 94})\n", f"f(\n\ta, {'a' * 94},\n\tk=1)\n"),
        (f"if 1:\n\tf({'a' * 94}, b)\n", f"if 1:\n\tf({'a' * 94}, b, k=1)\n"),
        (f"{'f' * 98}(a)\n", f"{'f' * 98}(a, k=1)\n"),
        ("f(\r\n    a,\r\n    b,\r\n)\r\n", "f(\r\n    a,\r\n    b,\r\n    k=1,\r\n)\r\n"),
    ],
)
def test_with_keyword(before: str, after: str) -> None:
    assert _change(before, lambda s: s.edits.with_keyword(_only(s, cst.Call), "k", "1")) == after


def test_set_argument_changes_or_adds() -> None:
    def edit(script: Script) -> Edits:
        call = script.calls.at(_only(script, cst.Call))
        return script.edits.set_argument(call.node, call.given("k"), "k", "2")

    assert _change("f(k=1)\n", edit) == "f(k=2)\n"
    assert _change("f(a)\n", edit) == "f(a, k=2)\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(k=1)\n", "f()\n"),
        ("f(a, k=1)\n", "f(a)\n"),
        ("f(k=1, b=2)\n", "f(b=2)\n"),
        ("f(a, k=(1), b=2)\n", "f(a, b=2)\n"),
        ("f(\n    a,\n    k=1,\n)\n", "f(\n    a,\n)\n"),
        ("f(\n    k=1,\n    b=2,\n)\n", "f(\n    b=2,\n)\n"),
        ("f(\n    a,\n    k=1,  # why\n    b=2,\n)\n", "f(\n    a,\n    # why\n    b=2,\n)\n"),
        ("f(\n    a,  # first\n    k=1,  # why\n)\n", "f(\n    a,  # first\n    # why\n)\n"),
        ("f(\n    a,  # first\n    k=1,\n)\n", "f(\n    a,  # first\n)\n"),
    ],
)
def test_without_argument(before: str, after: str) -> None:
    def edit(script: Script) -> Edits:
        call = script.calls.at(_only(script, cst.Call))
        given = call.given("k")
        assert given is not None
        return script.edits.without_argument(call.node, given)

    assert _change(before, edit) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("with a(), k():\n    pass\n", "with a():\n    pass\n"),
        ("with k(), a() as b:\n    pass\n", "with a() as b:\n    pass\n"),
        ("with a() as b, k() as c:\n    pass\n", "with a() as b:\n    pass\n"),
        (
            "with (\n    a(),\n    k(),  # why\n    b(),\n):\n    pass\n",
            "with (\n    a(),\n    # why\n    b(),\n):\n    pass\n",
        ),
    ],
)
def test_without_item(before: str, after: str) -> None:
    def edit(script: Script) -> Edits | None:
        statement = _only(script, cst.With)
        (item,) = (each for each in statement.items if script.code(each.item) == "k()")
        return script.edits.without_item(statement, item)

    assert _change(before, edit) == after


def test_without_item_leaves_the_only_one() -> None:
    script = _script("with k():\n    pass\n")
    statement = _only(script, cst.With)
    assert script.edits.without_item(statement, statement.items[0]) is None


def test_united_makes_one_deletion_of_two_that_overlap() -> None:
    script = _script("abcdef = 1\n")
    rewrite = script.edits
    edits = rewrite.united(rewrite.delete(0, 3), rewrite.delete(2, 4), rewrite.insert(9, "2"))
    assert _made(script, edits) == "ef = 21\n"


# -- imports ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word", "made"),
    [
        ("import os\n", "os", "import os\n"),
        ("import os as o\n", "o", "import os as o\n"),
        ("x = 1\n", "os", "import os\nx = 1\n"),
        ('"""Doc."""\nx = 1\n', "os", '"""Doc."""\nimport os\nx = 1\n'),
        (
            "from __future__ import annotations\nimport sys\n",
            "os",
            "from __future__ import annotations\nimport os\nimport sys\n",
        ),
        ("# coding: utf-8\nimport sys\n", "os", "# coding: utf-8\nimport os\nimport sys\n"),
        ("def f():\n    import os\n", "os", "import os\ndef f():\n    import os\n"),
    ],
)
def test_importing_a_module(text: str, word: str, made: str) -> None:
    script = _script(text)
    found = script.edits.importing("os")
    assert found is not None
    assert (found[0], _made(script, found[1])) == (word, made)


def test_an_import_made_beside_one_in_a_try_is_not_made_again() -> None:
    script = _script("try:\n    import torch\nexcept ImportError:\n    raise\n")
    made = script.edits.importing("torch")
    assert made is not None
    text = _made(script, made[1])
    assert text.startswith("import torch\ntry:")
    assert _script(text).edits.importing("torch") == ("torch", ())


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("import os\nuse()\n", None),
        ("first()\nimport os\nuse()\n", None),
        ("import sys\nuse()\nimport os\n", "import os\nimport sys\nuse()\nimport os\n"),
        ("def f():\n    use()\nimport os\n", "import os\ndef f():\n    use()\nimport os\n"),
    ],
)
def test_an_import_below_its_use_does_not_count(text: str, made: str | None) -> None:
    script = _script(text)
    (use,) = (call for call in script.tree.all(cst.Call) if script.code(call) == "use()")
    found = script.edits.importing("os", at=use)
    assert found is not None
    assert (_made(script, found[1]) if found[1] else None) == made


def test_without_a_place_an_import_counts_above_all_code() -> None:
    found = _script("first()\nimport os\n").edits.importing("os")
    assert found is not None
    assert found[1]


def test_a_name_that_is_imported_below_is_imported_above_as_well() -> None:
    script = _script("import a\nuse()\nfrom m import b\n")
    (use,) = script.tree.all(cst.Call)
    found = script.edits.importing("m", "b", at=use)
    assert found is not None
    assert _made(script, found[1]).startswith("from m import b\nimport a\nuse()")
    names = script.edits.importing_names("m", "b", "d", at=use)
    assert names is not None
    assert "from m import b\nfrom m import d\nimport a\n" in _made(script, names[1])


def test_importing_a_name_and_an_alias() -> None:
    script = _script("import sys\n")
    found = script.edits.importing("torch", "nn")
    assert found is not None
    assert _made(script, found[1]) == "from torch import nn\nimport sys\n"
    found = script.edits.importing("numpy", alias="np")
    assert found is not None
    assert (found[0], _made(script, found[1])) == ("np", "import numpy as np\nimport sys\n")


def test_importing_a_part_of_a_package_that_is_imported() -> None:
    script = _script("import sys\nimport torch\nimport yaml\n")
    found = script.edits.importing("torch.nn.functional", alias="F")
    assert found is not None
    assert _made(script, found[1]) == (
        "import sys\nimport torch\nimport torch.nn.functional as F\nimport yaml\n"
    )


@pytest.mark.parametrize(
    ("text", "words", "made"),
    [
        ("import sys\n", ("b", "d"), "from m import b\nfrom m import d\nimport sys\n"),
        ("from m import a, c\n", ("b", "d"), "from m import a, b, c, d\n"),
        ("from m import c\n", ("b", "d"), "from m import b, c, d\n"),
        ("from m import c as x\n", ("b", "d"), "from m import b, c as x, d\n"),
        ("from m import c, a\n", ("b", "d"), "from m import c, a, b, d\n"),
        ("from m import b, d as e\n", ("b", "e"), "from m import b, d as e\n"),
        ("from m import (\n    a,\n    c,\n)\n", ("b", "d"),
         "from m import (\n    a,\n    b,\n    c,\n    d,\n)\n"),
        ("from .m import a\n", ("b", "d"),
         "from m import b\nfrom m import d\nfrom .m import a\n"),
    ],
)  # fmt: skip
def test_importing_names_where_their_order_has_them(
    text: str, words: tuple[str, ...], made: str
) -> None:
    script = _script(text)
    found = script.edits.importing_names("m", "b", "d")
    assert found is not None
    assert (found[0], _made(script, found[1])) == (words, made)


def test_importing_names_gives_way_to_what_has_a_word() -> None:
    assert _script("from m import a\nd = 1\n").edits.importing_names("m", "b", "d") is None


@pytest.mark.parametrize("text", ["os = 1\n", "import sys as os\n", "def os(): pass\n"])
def test_importing_gives_way_to_what_has_the_word(text: str) -> None:
    assert _script(text).edits.importing("os") is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import a\na.f()\nx = 1\n", "a.f()\nx = 1\n"),
        ("from a import b as c, d\nc.f()\nd()\n", "from a import d\nc.f()\nd()\n"),
        (
            "from a import (\n    d,\n    b,\n)\nb.f()\nd()\n",
            "from a import (\n    d,\n)\nb.f()\nd()\n",
        ),
        ("from a import b, c\nb(c)\nd()\n", "b(c)\nd()\n"),
        ("from a import b, c, d\nb(c)\nd()\n", "from a import d\nb(c)\nd()\n"),
        ("from a import d, b, c\nb(c)\nd()\n", "from a import d\nb(c)\nd()\n"),
        ("from a import b, d, c\nb(c)\nd()\n", "from a import d\nb(c)\nd()\n"),
        ("import a\na.f()\na.g()\n", "import a\na.f()\na.g()\n"),
        ('import a\na.f()\n__all__ = ["a"]\n', 'import a\na.f()\n__all__ = ["a"]\n'),
    ],
)
def test_without_imports(before: str, after: str) -> None:
    def edit(script: Script) -> Edits | None:
        return script.edits.without_imports(script.tree.all(cst.Expr)[0])

    assert _change(before, edit) == after


@pytest.mark.parametrize(
    "text",
    ["import a; b = 1\na.f()\n", "try:\n    import a\nexcept ImportError:\n    a = 1\na.f()\n"],
)
def test_without_imports_never_leaves_half_of_a_line(text: str) -> None:
    script = _script(text)
    line = script.tree.all(cst.Expr)[0]
    assert script.edits.without_imports(line) in (None, ())


# -- statements ---------------------------------------------------------------


def test_before_and_after() -> None:
    text = "if 1:\r\n\tx = 1  # one\r\n\ty = 2\r\n"

    def line(script: Script) -> cst.BaseStatement:
        return script.tree.statement(script.tree.all(cst.Assign)[0])

    assert _change(text, lambda s: s.edits.before(line(s), "a()", "b()")) == (
        "if 1:\r\n\ta()\r\n\tb()\r\n\tx = 1  # one\r\n\ty = 2\r\n"
    )
    assert _change(text, lambda s: s.edits.after(line(s), "a()")) == (
        "if 1:\r\n\tx = 1  # one\r\n\ta()\r\n\ty = 2\r\n"
    )


@pytest.mark.parametrize("above", ["", "\t@staticmethod\n", "\t@property\n\t# why\n"])
def test_a_decorator_stands_right_above_its_function(above: str) -> None:
    text = f"class A:\n{above}\tdef f():\n\t\tpass\n"
    assert _change(text, lambda s: s.edits.decorate(s.tree.all(cst.FunctionDef)[0], "d()")) == (
        f"class A:\n{above}\t@d()\n\tdef f():\n\t\tpass\n"
    )


def test_after_the_last_line_without_an_end() -> None:
    assert _change("x = 1", lambda s: s.edits.after(s.tree.all(cst.Assign)[0], "y = 2")) == (
        "x = 1\ny = 2"
    )


def test_after_a_block_with_a_comment_at_its_end() -> None:
    text = "for x in y:\n    f()\n    # done\n# next\ng()\n"
    assert _change(text, lambda s: s.edits.after(_only(s, cst.For), "h()")) == (
        "for x in y:\n    f()\n    # done\nh()\n# next\ng()\n"
    )


def test_first_in() -> None:
    def edit(script: Script) -> Edits | None:
        return script.edits.first_in(_only(script, cst.FunctionDef).body, "a()")

    assert _change("def f():\n    return 1\n", edit) == "def f():\n    a()\n    return 1\n"
    assert _change('def f():\n    """Doc."""\n    return 1\n', edit) == (
        'def f():\n    """Doc."""\n    a()\n    return 1\n'
    )
    script = _script("def f(): return 1\n")
    assert edit(script) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("k()\nx = 1\n", "x = 1\n"),
        ("k()  # why\nx = 1\n", "# why\nx = 1\n"),
        ("if 1:\n    k()  # why\n", "if 1:\n    pass  # why\n"),
        ("a = 1\n\nk()\n\n\nx = 1\n", "a = 1\n\n\nx = 1\n"),
        ("a = 1\n\n\nk()\n\nx = 1\n", "a = 1\n\n\nx = 1\n"),
        ("a = 1\n\nk()\nx = 1\n", "a = 1\n\nx = 1\n"),
        ("def f():\n    k()\n\n    return 1\n", "def f():\n    return 1\n"),
        ("x = 1\r\nk(\r\n    1,\r\n)\r\ny = 2\r\n", "x = 1\r\ny = 2\r\n"),
        ("x = 1\nk()", "x = 1\n"),
        ("k(  # one\n    1  # two\n)  # three\nx = 1\n", "# one\n# two\n# three\nx = 1\n"),
        ("k(  # one\n    1\n)\nx = 1\n", "# one\nx = 1\n"),
        ("if 1:\n    k(\n        1  # one\n    )  # two\n", "if 1:\n    # one\n    pass  # two\n"),
        ("if 1:\n    a\nelse:\n    k()\nx = 1\n", "if 1:\n    a\nx = 1\n"),
        ("if 1:\n    a\nelse:\n    k();\n", "if 1:\n    a\n"),
        ("if 1:\n    a\nelse:  # one\n    k()\n", "if 1:\n    a\nelse:  # one\n    pass\n"),
    ],
)
def test_drop(before: str, after: str) -> None:
    def edit(script: Script) -> Edits:
        call = next(each for each in script.tree.all(cst.Call) if script.code(each.func) == "k")
        line = script.tree.statement(call)
        assert isinstance(line, cst.SimpleStatementLine)
        return script.edits.drop(line)

    assert _change(before, edit) == after


# -- blocks -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a()\nb()\n", "with k():\n    a()\n    b()\n"),
        ("if 1:\n\ta()\n\n\tb()\n", "if 1:\n\twith k():\n\t\ta()\n\n\t\tb()\n"),
        ('a("""\nx\n""")\nb()\n', 'with k():\n    a("""\nx\n""")\n    b()\n'),
        ("a(\n  1)\nb()\r\n", "with k():\n    a(\n      1)\n    b()\r\n"),
        ("a()\nb(1)  # why\n", "with k():\n    a()\n    b(1)  # why\n"),
        ("a()\n# why\nb()", "with k():\n    a()\n    # why\n    b()"),
        (
            "if 1:\n\tif 2:\n\t    a()\n\t    b()\n",
            "if 1:\n\tif 2:\n\t    with k():\n\t    \ta()\n\t    \tb()\n",
        ),
    ],
)
def test_wrap(before: str, after: str) -> None:
    def edit(script: Script) -> Edits:
        lines = [script.tree.statement(call) for call in script.tree.all(cst.Call)]
        return script.edits.wrap(lines, "with k():")

    assert _change(before, edit) == after


def test_wrap_takes_the_comments_at_the_end_of_a_block_along() -> None:
    text = "for x in y:\n    f()\n    # done\n"
    assert _change(text, lambda s: s.edits.wrap([_only(s, cst.For)], "with k():")) == (
        "with k():\n    for x in y:\n        f()\n        # done\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("with k():\n    a()\n    b()\n", "a()\nb()\n"),
        ("with k():\n\n    a()\n\n    b()\n", "a()\n\nb()\n"),
        ("with k():  # why\n    a()\n", "# why\na()\n"),
        ("with k(x[1:2]) as (b):  # a: b\n    a()\n", "# a: b\na()\n"),
        ("with k(\n    1,\n):\n    a()\n", "a()\n"),
        ("if 1:\n\twith k():\n\t\ta()\n\t\tif 2:\n\t\t\tb()\n", "if 1:\n\ta()\n\tif 2:\n\t\tb()\n"),
        ("if 1:\n\twith k():\n\t    a()\n\t    b()\n", "if 1:\n\ta()\n\tb()\n"),
        ('with k():\n    a("""\n    x\n""")\n', 'a("""\n    x\n""")\n'),
        ('with k():\n    a(f"""\n    {x}\n""")\n    b()\n', 'a(f"""\n    {x}\n""")\nb()\n'),
        ("with k():\n    a(1,\n      2)\n", "a(1,\n  2)\n"),
        ("with k():\n    a()\n    # done\nb()\n", "a()\n# done\nb()\n"),
        ("with k():\n    a()\n# low\n    b()\n", "a()\n# low\nb()\n"),
        ("with k():\r\n    a()\r\n    b()\r\n", "a()\r\nb()\r\n"),
        ("with k():\n    x = 1 + \\\n        2", "x = 1 + \\\n    2"),
        (
            "with k():\n    def f():\n        return 1\n\n    a()\n",
            "def f():\n    return 1\n\na()\n",
        ),
    ],
)
def test_unwrap(before: str, after: str) -> None:
    assert _change(before, lambda s: s.edits.unwrap(_only(s, cst.With))) == after


@pytest.mark.parametrize("text", ["with k(): a()\n", "with k(  # why\n    1):\n    a()\n"])
def test_unwrap_refuses_what_it_would_tear(text: str) -> None:
    script = _script(text)
    assert script.edits.unwrap(_only(script, cst.With)) is None


# -- any layout ---------------------------------------------------------------


def _indented(lines: Sequence[str], by: str) -> list[str]:
    return [by + line if line.strip() else line for line in lines]


@st.composite
def _bodies(draw: st.DrawFn, unit: str, depth: int = 2) -> list[str]:
    """Draw the lines of a block: calls, comments, blank lines and blocks inside."""
    simple = st.sampled_from(
        [
            ["a()"],
            ["b(1)  # why"],
            ["# note", "c()"],
            ["", "d()"],
            ["e(", f"{unit}1,", ")"],
            ["f() ; g()"],
        ]
    )
    found: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            head = draw(st.sampled_from(["if x:", "for i in y:", "def h():", "while z:  # long"]))
            found += [head, *_indented(draw(_bodies(unit, depth - 1)), unit)]
        else:
            found += draw(simple)
    return found


@st.composite
def _texts(draw: st.DrawFn) -> tuple[str, str, str]:
    """Draw a body, the same under a `with`, and the line end that both have."""
    unit = draw(st.sampled_from(["    ", "  ", "\t", " "]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    body = draw(_bodies(unit).filter(lambda lines: lines[0] not in ("", "# note")))
    inside = ["with k():", *_indented(body, unit)]
    if draw(st.booleans()):
        body, inside = ["if top:", *_indented(body, unit)], ["if top:", *_indented(inside, unit)]
    return end.join(body) + end, end.join(inside) + end, unit


@settings(max_examples=150, deadline=None)
@given(_texts())
def test_unwrap_gives_back_what_stood_there_without_the_with(texts: tuple[str, str, str]) -> None:
    body, wrapped, _ = texts
    assert _change(wrapped, lambda s: s.edits.unwrap(_only(s, cst.With))) == body


@settings(max_examples=150, deadline=None)
@given(_texts())
def test_wrap_is_the_way_back(texts: tuple[str, str, str]) -> None:
    body, wrapped, unit = texts

    def edit(script: Script) -> Edits:
        lines: Sequence[cst.CSTNode] = script.tree.module.body
        first = lines[0]
        if isinstance(first, cst.If) and script.code(first.test) == "top":
            assert isinstance(first.body, cst.IndentedBlock)
            lines = first.body.body
        return script.edits.wrap(lines, "with k():")

    script = _script(body)
    if script.edits.unit() == unit:
        assert _change(body, edit) == wrapped
    else:
        assert ast.dump(ast.parse(_change(body, edit))) == ast.dump(ast.parse(wrapped))


@settings(max_examples=100, deadline=None)
@given(_texts(), st.data())
def test_drop_takes_one_statement_and_nothing_else(
    texts: tuple[str, str, str], data: st.DataObject
) -> None:
    script = _script(texts[0])
    lines = [
        line for line in script.tree.all(cst.SimpleStatementLine) if script.edits.stands_alone(line)
    ]
    if not lines:
        return
    line = data.draw(st.sampled_from(lines))
    made = _made(script, script.edits.drop(line))
    compile(made, "train.py", "exec")
    comments = [part for part in script.source.text.split() if part == "#"]
    assert [part for part in made.split() if part == "#"] == comments
    assert made.count("(") == script.source.text.count("(") - script.code(line).count("(")
