from __future__ import annotations

import json

import pytest
from notebook_samples import code, markdown, notebook

from torchlint.edit import Edit, Span
from torchlint.notebook import read_source
from torchlint.source import Source, SourceError

CODE = '{"cell_type": "code", "source": %s}'


def _read(text: str | bytes) -> Source:
    return read_source(text if isinstance(text, bytes) else text.encode(), "a.ipynb")


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("import torch\n", "a notebook is a JSON object, and this file is not", (1, 1)),
        ("[]", "a notebook is a JSON object, and this file is not", (1, 1)),
        ('{\n "cells": [\n', "the file ends too early", (3, 1)),
        ('{"cells": [], }', "expected a name in quotes", (1, 15)),
        ('{"cells" []}', "expected a colon", (1, 10)),
        ('{"cells": []\n "metadata": {}}', "expected a comma or `}`", (2, 2)),
        ('{"cells": []} {}', "unexpected text after the notebook", (1, 15)),
        ('{"cells": [], "metadata": nul}', "invalid JSON: Expecting value", (1, 27)),
        ('{"cells": [], "a\n": 1}', "invalid JSON: Invalid control character at", (1, 17)),
        ("{}", "this notebook has no list of cells", (1, 1)),
        ('{"cells": {}}', "`cells` is not a list", (1, 11)),
        ('{"cells": [1]}', "cell 1 is not a JSON object", (1, 12)),
        ('{"cells": [{}]}', "cell 1 has no `cell_type`", (1, 12)),
        ('{"cells": [{"cell_type": "code"}]}', "cell 1 has no `source`", (1, 12)),
        ('{"cells": [], "cells": []}', "the notebook has `cells` twice", (1, 15)),
        ('{"cells": [{"source": "a", "source": "b"}]}', "cell 1 has `source` twice", (1, 28)),
        ('{"cells": [{"source": "a", "input": "b"}]}', "has both a `source` and an `input`", None),
        (f'{{"cells": [{CODE % 1}]}}', "cell 1 is neither a string nor a list of strings", None),
        (f'{{"cells": [{CODE % "[[]]"}]}}', "is neither a string nor a list of strings", None),
        ('{"worksheets": [3]}', "a worksheet is not a JSON object", None),
        ('{"metadata": ' + "[" * 200_000, "this notebook is nested too deeply", (1, 1)),
        (b'{"cells": []}\n\0', "the file holds a NUL byte", (2, 1)),
        (b'{\n"cells": ["\xff"]}', "byte 0xff is not utf-8 text", (2, 1)),
    ],
)
def test_what_is_no_notebook_is_one_line(
    text: str | bytes, said: str, place: tuple[int, int] | None
) -> None:
    with pytest.raises(SourceError) as caught:
        _read(text)
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    if place is not None:
        assert (caught.value.position.row, caught.value.position.column) == place


def test_code_cells_are_one_text_with_a_statement_between_them() -> None:
    source = _read(
        notebook(markdown("# x"), code("a = 1\n!ls"), code("%%bash\nls"), code(""), code("b = a"))
    )
    assert source.text == "a = 1\n0  \n0\nb = a\n"


@pytest.mark.parametrize("language", ["python", "ipython", "Python 3", "python3", ""])
def test_kernels_of_python(language: str) -> None:
    assert _read(notebook(code("x"), language=language)).text == "x\n"


@pytest.mark.parametrize("language", ["R", "julia", "scala", "C++"])
def test_kernels_of_other_languages_have_no_python(language: str) -> None:
    source = _read(notebook(code("x <- 1"), language=language))
    assert source.text == ""
    assert source.to_bytes().decode() == notebook(code("x <- 1"), language=language)


def test_a_kernel_that_says_nothing_is_taken_for_python() -> None:
    assert _read(f'{{"cells": [{CODE % json.dumps("x")}]}}').text == "x\n"
    assert _read(f'{{"metadata": 3, "cells": [{CODE % json.dumps("x")}]}}').text == "x\n"


def test_format_3() -> None:
    cells = [
        {"cell_type": "heading", "level": 1, "source": ["x"]},
        {"cell_type": "code", "language": "python", "input": ["a = 1\n", "b = 2"]},
        {"cell_type": "code", "language": "r", "input": "c <- 3"},
    ]
    sheet = {"cells": cells, "metadata": {}}
    whole = {"metadata": {"name": ""}, "nbformat": 3, "worksheets": [sheet, sheet]}
    source = _read(json.dumps(whole))
    assert source.text == "a = 1\nb = 2\n0\na = 1\nb = 2\n"
    assert [number for number, _ in source.parts()] == [2, 5]


def test_a_cell_that_is_indented_as_a_whole_is_a_block() -> None:
    source = _read(notebook(code("  # note\n  x = 1\n  y = 2"), code("  # a note alone")))
    assert source.text == "if 1:\n  # note\n  x = 1\n  y = 2\n0\n  # a note alone\n"
    at = source.text.index("y")
    part = source.part(Span(at, at + 1))
    assert part.place == "cell 1:3:3"
    edited = source.edited([Edit(Span(at, at + 1), "z")])
    assert json.loads(edited.to_bytes())["cells"][0]["source"][2] == "  z = 2"


def test_an_empty_file_is_a_notebook_without_cells() -> None:
    assert _read("\n").text == ""
