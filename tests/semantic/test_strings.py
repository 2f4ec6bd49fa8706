"""Strings that hypothesis writes are read as LibCST's own parser reads them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

import libcst as cst
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from semantic.likeness import compare

from torchlint.source import Source

WORDS = st.sampled_from(
    ["a", "ü", "{{", "}}", " ", "#", "\\n", "\\\\", "\\x41", ":", "!r", "=", "'", '"', "\n", "N"]
)
EXPRESSIONS = st.sampled_from(
    ["x", "x.y", "x[0]", "(x)", "(x+1)*2", "x if x else x", "x!=y", "x==y", "(x,y)", "x,y", "[x]"]
)
CONVERSIONS = st.sampled_from(["", "", "!r", "!s", "!a"])
QUOTES = st.sampled_from(["'", '"', "'''", '"""'])
PREFIXES = st.sampled_from(["", "r", "f", "F", "rf", "fR"])
BETWEEN = st.sampled_from(["", " ", "\n", '  # it\'s "one"\n', " \\\n"])


@st.composite
def fields(draw: st.DrawFn, nested: st.SearchStrategy[str]) -> str:
    """Write what stands in an f-string for an expression."""
    expression = draw(EXPRESSIONS | nested)
    shown = "=" if draw(st.booleans()) and expression.isidentifier() else ""
    spec = draw(st.sampled_from(["", "", ":", ":>4", ":{x}", ":>{x}.{y!r}f"]))
    space = draw(st.sampled_from(["", "", "", " "]))
    return f"{{{space}{expression}{space}{shown}{draw(CONVERSIONS)}{spec}}}"


@st.composite
def literals(draw: st.DrawFn, nested: st.SearchStrategy[str]) -> str:
    """Write one literal."""
    prefix, quote = draw(PREFIXES), draw(QUOTES)
    parts = st.lists(WORDS | fields(nested) if "f" in prefix.lower() else WORDS, max_size=5)
    return f"{prefix}{quote}{''.join(draw(parts))}{quote}"


def side_by_side(nested: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Write up to three literals side by side, in parentheses or not."""
    several = st.lists(st.tuples(literals(nested), BETWEEN), min_size=1, max_size=3)
    return several.map(lambda pieces: f"({''.join(map(''.join, pieces))})")


STRINGS = st.recursive(EXPRESSIONS, side_by_side, max_leaves=4)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Let strings hold escapes that mean nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@settings(deadline=None)
@given(STRINGS, st.sampled_from(["\n", "\r\n"]))
def test_strings_are_read_as_libcst_reads_them(written: str, newline: str) -> None:
    text = f"x = y = z = 1\nprint({written}, {written})\n".replace("\n", newline)
    try:
        tree = ast.parse(text)
        module = cst.parse_module(text)
    except (SyntaxError, cst.ParserSyntaxError):
        assume(False)
    compare(Source("s.py", text), tree, module)
