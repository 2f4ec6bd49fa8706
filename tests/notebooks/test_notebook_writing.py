from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from notebook_samples import code, markdown, notebook

from torchlint.edit import Edit, Span
from torchlint.notebook import read_source
from torchlint.source import Source


def _read(text: str) -> Source:
    return read_source(text.encode("utf-8", "surrogatepass"), "a.ipynb")


def _replaced(text: str, old: str, new: str) -> str:
    """Return a notebook in whose code `new` stands for `old`."""
    source = _read(text)
    start = source.text.index(old)
    edit = Edit(Span(start, start + len(old)), new)
    assert source.takes([edit])
    return source.edited([edit]).to_bytes().decode()


def test_only_the_lines_that_change_are_written() -> None:
    text = notebook(markdown("é"), code("a = 1\nb = 2\nc = 3"), code("é = 4"))
    assert _replaced(text, "b = 2\n", "b = 5\nd = 'ü'\n") == text.replace(
        '    "b = 2\\n",\n', '    "b = 5\\n",\n    "d = \'ü\'\\n",\n'
    )
    assert _replaced(text, "b = 2\n", "") == text.replace('    "b = 2\\n",\n', "")
    assert _replaced(text, "c = 3\n", "c = 3\nd = 4\n") == text.replace(
        '"c = 3"', '"c = 3\\n",\n    "d = 4"'
    )
    assert _replaced(text, "\nc = 3", "") == text.replace('"b = 2\\n",\n    "c = 3"', '"b = 2"')


def test_the_layout_of_the_file_stays() -> None:
    text = notebook(code("a = 1\nb = 2"), code("c = 3"))
    crlf = text.replace("\n", "\r\n")
    assert _replaced(crlf, "a = 1\n", "a = 1\nx\n") == crlf.replace(
        '"a = 1\\n",', '"a = 1\\n",\r\n    "x\\n",'
    )
    tabs = text.replace("    ", "\t\t")
    assert _replaced(tabs, "c = 3", "c = 3\nx") == tabs.replace('"c = 3"', '"c = 3\\n",\n\t\t"x"')
    wide = notebook(code("c = 3"), indent=None)
    assert _replaced(wide, "c = 3", "c\nx") == wide.replace('["c = 3"]', '["c\\n", "x"]')
    tight = wide.replace(" ", "")
    assert _replaced(tight, "c=3", "c\nx") == tight.replace('["c=3"]', '["c\\n","x"]')
    bare = text.removesuffix("\n")
    assert _replaced(bare, "c = 3", "d") == bare.replace("c = 3", "d")


def test_a_byte_order_mark_stays() -> None:
    text = "\ufeff" + notebook(code("c = 3"))
    assert _replaced(text, "c = 3", "d") == text.replace("c = 3", "d")


def test_escapes_of_lines_that_stay_are_kept() -> None:
    text = notebook(code("a = 'X'\nb = 2\nc = 3")).replace("X", "\\u00e9\\/\\ud83d\\ude00")
    assert _replaced(text, "b = 2", "b = 'é\"\\\\'") == text.replace(
        "b = 2", "b = '\\u00e9\\\"\\\\\\\\'"
    )
    mixed = text.replace("c = 3", "c = 'ß'")
    assert _replaced(mixed, "b = 2", "b = 'é'") == mixed.replace("b = 2", "b = 'é'")


def test_a_source_that_is_one_string() -> None:
    text = notebook(code("")).replace('"source": []', '"source": "a = \'\\u00e9\'\\nb\\u000ac"')
    assert _read(text).text == "a = 'é'\nb\nc\n"
    assert _replaced(text, "\nc", "\nd\ne") == text.replace("\\u000ac", "\\u000ad\\ne")
    assert _replaced(text, "a = 'é'\nb\nc\n", "").count('"source": ""') == 1


def test_strings_that_are_no_lines() -> None:
    strings = '["a = ", "1\\nb = 2\\n", "", "c = 3\\n", "d", ""]'
    text = notebook(code("")).replace('"source": []', f'"source": {strings}')
    assert _read(text).text == "a = 1\nb = 2\nc = 3\nd\n"
    assert _replaced(text, "c = 3", "e") == text.replace("c = 3", "e")
    after = _replaced(text, "b = 2", "e")
    assert after == text.replace('"a = ", "1\\nb = 2\\n", ""', '"a = 1\\n", "e\\n"')


def test_a_cell_that_is_emptied() -> None:
    text = notebook(code("a = 1"), code("b = 2"), code("c = 3"))
    source = _read(text)
    after = source.edited([Edit(Span(8, 14), "")])
    assert after.text == "a = 1\n0\nc = 3\n"
    assert [each["source"] for each in json.loads(after.to_bytes())["cells"]] == [
        ["a = 1"],
        [],
        ["c = 3"],
    ]
    assert type(after).from_bytes(after.to_bytes(), "a.ipynb") == after


@pytest.mark.parametrize(
    ("start", "end", "new"),
    [
        (0, 0, "x\n"),  # before the magic of the cell
        (2, 4, "y"),  # in it
        (7, 12, ""),  # in two cells
        (9, 10, "1"),  # between them
        (15, 16, "y"),  # in what a command gives
        (11, 20, "y"),  # around it
        (23, 24, "("),  # no Python
        (7, 7, "  "),
    ],
)
def test_edits_that_no_cell_can_take(start: int, end: int, new: str) -> None:
    source = _read(notebook(code("%%time\nb"), code("c = !ls 1"), code("%%timeit\nsum"), code("d")))
    assert source.text == "0     \nb\n0\nc = __   \n0\nd\n"
    assert not source.takes([Edit(Span(start, end), new)])
    assert source.takes([Edit(Span(7, 8), "x"), Edit(Span(11, 12), "y")])


CELLS = st.lists(
    st.lists(st.sampled_from(["a = 1", "!ls", "é", "'\\n'", "\t", "%time x = 2", ""]), max_size=5)
    .map("\n".join)
    .flatmap(lambda text: st.tuples(st.just(text), st.booleans())),
    max_size=4,
)


@given(CELLS, st.sampled_from([None, 1, 4]), st.data())
def test_a_written_notebook_is_the_edited_one(
    cells: list[tuple[str, bool]], indent: int | None, data: st.DataObject
) -> None:
    made = [code(text) if is_list else {**code(""), "source": text} for text, is_list in cells]
    text = notebook(*made, indent=indent)
    source = _read(text)
    assert source.to_bytes().decode() == text
    at = data.draw(st.integers(0, len(source.text)))
    end = data.draw(st.integers(at, len(source.text)))
    new = data.draw(st.sampled_from(["", "z", "z\n", "\nz", "'ü'\n", "\\\n"]))
    edits = [Edit(Span(at, end), new)]
    if not source.takes(edits):
        return
    after = source.edited(edits)
    before, written = json.loads(text), json.loads(after.to_bytes())
    assert type(after).from_bytes(after.to_bytes(), "a.ipynb") == after
    changed = 0
    for old, found in zip(before["cells"], written["cells"], strict=True):
        changed += "".join(old.pop("source")) != "".join(found.pop("source"))
    assert changed <= 1
    assert before == written
