"""What is read through CPython's parser is what LibCST's own parser reads."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import libcst as cst
import pytest
from semantic.likeness import compare

from torchlint.semantic.syntax import read
from torchlint.semantic.syntax.tree import Tree
from torchlint.source import Source, SourceError

ROOT = Path(__file__).parents[2]
FILES = [
    *sorted((ROOT / "fixtures").rglob("*.py")),
    *sorted((ROOT / "torchlint").rglob("*.py"))[::5],
]


def parsed(path: Path) -> tuple[Source, ast.Module, cst.Module]:
    try:
        source = Source.from_bytes(path.read_bytes(), str(path))
        return source, ast.parse(source.text), cst.parse_module(source.text)
    except (SourceError, SyntaxError, MemoryError, RecursionError, cst.ParserSyntaxError) as error:
        pytest.skip(f"not Python that both parsers read: {type(error).__name__}")


@pytest.fixture(autouse=True)
def deep() -> Iterator[None]:
    """Return the tests themselves room to compare deeply nested code."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_nodes_and_their_places_are_those_of_libcst(path: Path) -> None:
    compare(*parsed(path))


@pytest.mark.parametrize(
    ("written", "is_rare"),
    [
        ('f"{x}{x} x {x}"', False),
        ("f'{y!r:>{w}} {x:} {x:%H:%M} {x:{w}.{w}f}'", False),
        ("f\"{y['a']} {x != 1} {(x)} {(x + 1) * 2} {((x))} {(1, 2)}\"", False),
        ('f"{{}}{x}}}\\n"', False),
        ('f""', False),
        ('f"" f"{x}"', False),
        ("f'a' \"b\" f\"{x}\" R'\\d' '''c'''", False),
        ('f"ü{x}ü{x}" "é"', False),
        ("f'''{x}'s \"q\" '''", False),
        ('(f"{x}"  # not "quoted"\n "b"\n f"{x}")', False),
        ('(f"{x}")', False),
        ('"" "a"', False),
        ('b"a" b"b"', False),
        ('f"{ {1} }"', True),
        ('f"{ x }"', True),
        ('f"{x=} {x=!r} {x=:>4}"', False),
        ('f"{x = }"', True),
        ('f"\\N{DIGIT ONE}{x}"', True),
        ('rf"\\{x}"', True),
        ("f'''a\n{x}\\\n{(x +\n w)}'''", False),
    ],
)
def test_strings_are_those_of_libcst_whoever_reads_them(written: str, is_rare: bool) -> None:
    text = f"w, x, y = 3, 1, {{}}\nprint({written}, w)\n{written}\n"
    syntax = compare(Source("s.py", text), ast.parse(text), cst.parse_module(text))
    assert bool(syntax.fragments) is is_rare


@pytest.mark.parametrize(
    "line",
    [
        "match x:\n    case 1:\n        pass\n",
        "del (x),\n",
        "x[*y]\n",
        "try:\n    pass\nexcept* ValueError:\n    pass\n",
        "from os . path import join\n",
    ],
)
def test_what_is_rare_is_left_to_libcst(line: str) -> None:
    source = Source("rare.py", line)
    try:
        ast.parse(line)
    except SyntaxError:
        pytest.skip("not Python of this version")
    assert not read(source).spans
    assert read(source).module.code == line


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("feed", ["\f", "  \f", "\f\f", "x = 1;@\f", 's = """@\f"""@\f'])
def test_a_form_feed_moves_nothing_that_libcst_reads(feed: str, end: str) -> None:
    lines = [feed + "match x:", "    case 1:", "        \f        print(y)", ""]
    source = Source("feed.py", "@".join(lines).replace("@", end))
    tree = Tree(source, read(source))
    (call,) = tree.all(cst.Call)
    assert tree.text(call) == "print(y)"


def test_parts_of_an_f_string_are_placed_when_asked_for() -> None:
    source = Source("f.py", 'print(("a"\n      f"{ (x + 1) :.{n}f}"), end="")\n')
    tree = Tree(source, read(source))
    assert [tree.text(name) for name in tree.all(cst.Name)] == ["print", "x", "n"]
    (sum_,) = tree.all(cst.BinaryOperation)
    assert tree.text(sum_) == "(x + 1)"
    (joined,) = tree.all(cst.ConcatenatedString)
    assert tree.text(joined) == '("a"\n      f"{ (x + 1) :.{n}f}")'


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_characters_of_several_bytes_are_counted_once_on_their_line(end: str) -> None:
    source = Source("wide.py", end.join(["# größer", 'first("ü", second)', "größe = third", ""]))
    syntax = read(source)
    tree = Tree(source, syntax)
    names = tree.all(cst.Name)
    assert syntax.spans
    assert [name.value for name in names] == ["first", "second", "größe", "third"]
    assert [tree.text(name) for name in names] == ["first", "second", "größe", "third"]
