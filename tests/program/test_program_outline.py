"""An outline tells what the top-level statements of a module bind, use and import."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from torchlint.notebook import read_source
from torchlint.program.index import outline_at
from torchlint.program.outline import Definition, Import, Kind, Outline, Star, outline_of
from torchlint.source import Source, SourceError

FIXTURES = Path(__file__).parents[2] / "fixtures"


def outline(text: str) -> Outline:
    """Return the outline of a text that parses."""
    found = outline_of(Source("module.py", text))
    assert found is not None
    return found


def definition(text: str) -> Definition:
    """Return the last definition of a text."""
    return outline(text).definitions[-1]


@pytest.mark.parametrize(
    ("text", "kind", "binds"),
    [
        ("def f(): pass", Kind.FUNCTION, "f"),
        ("async def f(): pass", Kind.FUNCTION, "f"),
        ("class C(B): x = 1", Kind.CLASS, "C"),
        ("a = b = 1", Kind.ASSIGNMENT, "a b"),
        ("a, (b, *c), d.e, f[0] = g", Kind.ASSIGNMENT, "a b c"),
        ("a: int = 1", Kind.ASSIGNMENT, "a"),
        ("a += 1", Kind.ASSIGNMENT, "a"),
        ("torch.backends.cudnn.benchmark = True", Kind.ASSIGNMENT, ""),
        ("import a.b, c as d", Kind.IMPORT, "a d"),
        ("from . import a as b", Kind.IMPORT, "b"),
        ("try:\n    import a\nexcept E as e:\n    a = None", Kind.IMPORT, "a e"),
        ("if x:\n    def f(): pass\nelse:\n    f = 1", Kind.ASSIGNMENT, "f"),
        ("if x:\n    import a\nelse:\n    a = None", Kind.IMPORT, "a"),
        ("if x:\n    from a import b\n    b()", Kind.CODE, "b"),
        ("if x:\n    from a import b\n    c = b()\n    c.run()", Kind.CODE, "b c"),
        ("if x:\n    run()", Kind.CODE, ""),
        ("for i, j in x:\n    k = i", Kind.CODE, "i j k"),
        ("with open(x) as f, g:\n    y = f", Kind.CODE, "f y"),
        ("while x: y = 1", Kind.CODE, "y"),
        ("run()", Kind.CODE, ""),
        ("if __name__ == '__main__':\n    args = 1\n    run()", Kind.GUARD, "args"),
    ],
)
def test_a_statement_has_a_kind_and_binds_names(text: str, kind: Kind, binds: str) -> None:
    found = definition(text)
    assert (found.kind, " ".join(found.binds)) == (kind, binds)


def test_a_definition_has_its_lines_with_decorators_and_without_plain_strings() -> None:
    text = (
        '"""Text."""\n\n@a\n@b(\n    1)\ndef f():\n    pass\n\n'
        'x = 1; y = 2; \\\nz = 3\n"""Text."""\n'
    )
    places = [(each.first, each.last, each.binds) for each in outline(text).definitions]
    assert places == [(3, 7, ("f",)), (9, 10, ("x", "y", "z"))]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_are_those_of_python(end: str) -> None:
    text = end.join(["x = '''", "z", "'''", "def f(): pass", "y = f"])
    found = [(each.first, each.last, each.size) for each in outline(text).definitions]
    assert [each[:2] for each in found] == [(1, 3), (4, 4), (5, 5)]
    assert sum(each[2] for each in found) == len(text)


def test_uses_are_own_and_imported_names_at_the_head_of_dotted_ones() -> None:
    text = (
        "import data, torch as t\nfrom nets import Net\nlr = 1\n"
        "def f(net):\n    net.lr, other, print\n    return t.nn.Net(data.loaders(**lr)[0].x)\n"
    )
    found = definition(text)
    assert found.uses == {"f", "t", "data", "lr"}
    assert found.chains == ("data.loaders", "t.nn.Net")


def test_with_a_star_import_every_word_may_be_one_of_the_project() -> None:
    assert definition("from a import *\ndef f(): g(1)").uses >= {"g"}
    assert outline("from ..a import *\n").stars == (Star(2, "a"),)


def test_imports_tell_what_their_names_stand_for() -> None:
    text = "import a.b\nimport a.b as c\nimport d\nfrom . import e\nfrom ..f.g import h as i"
    found = [(each.bound, each.qualified) for each in outline(text).imports]
    assert found == [("a", "a"), ("c", "a.b"), ("d", "d"), ("e", ".e"), ("i", "..f.g.h")]


def test_imports_inside_functions_belong_to_these() -> None:
    text = (
        "def f():\n    def g():\n        if x: from a import b\n    import c.d\n    c.d.e, b\n"
        "class C:\n    def m(self): import h\n"
    )
    found = outline(text)
    assert found.imports == ()
    inside = (Import(0, "c.d", None, "c.d"), Import(0, "a", "b", "b"))
    assert set(found.definitions[0].imports) == set(inside)
    assert found.definitions[0].chains == ("c.d", "c.d.e")
    assert found.definitions[1].imports == (Import(0, "h", None, "h"),)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x = 1", None),
        ("__all__ = ['a', 'b']", {"a", "b"}),
        ("__all__ = ('a',)\n__all__ += ['b']", {"a", "b"}),
        ("__all__: list[str] = ['a']", {"a"}),
        ("__all__ = [name for name in x]", None),
        ("__all__ = ['a'] + b", None),
        ("__all__ = ['a', b]", None),
    ],
)
def test_exports_are_a_plain_list(text: str, names: set[str] | None) -> None:
    found = outline(text)
    assert found.exports == names
    assert all("__all__" not in each.binds for each in found.definitions)


@pytest.mark.parametrize(
    ("text", "starts", "trains"),
    [
        ("'''Text.'''\nimport a\nx = 1\ndef f(): pass", False, False),
        ("run()", True, False),
        ("if __name__ == '__main__':\n    pass", True, False),
        ("try:\n    run()\nfinally:\n    pass", False, False),
        ("def f(x): x.backward()", False, True),
        ("from torch.utils.data import DataLoader", False, True),
    ],
)
def test_a_module_may_start_a_program_and_train(text: str, starts: bool, trains: bool) -> None:
    found = outline(text)
    assert (found.starts, found.trains) == (starts, trains)


@pytest.mark.parametrize("text", ["def f(:", "print 'x'", "x = " + "(" * 999, "\ud800 = 1"])
def test_a_text_that_does_not_parse_has_no_outline(text: str) -> None:
    assert outline_of(Source("module.py", text)) is None


def test_a_file_that_is_no_text_has_no_outline(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\0")
    assert outline_at(tmp_path, "a.py") is None
    assert outline_at(tmp_path, "gone.py") is None


def test_an_outline_is_small_and_its_lines_are_in_order() -> None:
    sizes = []
    for path in sorted(FIXTURES.rglob("*.py")):
        try:
            source = read_source(path.read_bytes(), str(path))
        except SourceError:
            continue
        found = outline_of(source)
        if found is not None:
            rows = [row for each in found.definitions for row in (each.first, each.last + 1)]
            assert rows == sorted(rows)
            assert rows[-1:] <= [len(source.line_starts) + 1]
            sizes.append(len(pickle.dumps(found)))
    assert sum(sizes) < 2_000 * len(sizes)
