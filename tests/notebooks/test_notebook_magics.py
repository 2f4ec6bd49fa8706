from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlint.notebook.magics import masked


@pytest.mark.parametrize(
    ("cell", "python"),
    [
        ("x = 1\n%matplotlib inline\ny = 2", "x = 1\n0                 \ny = 2"),
        ("!pip install torch", "0                 "),
        ("!!ls\n??net\n?net\nnet?\nnet.fc??", "0   \n0    \n0   \n0   \n0       "),
        ("if x:\n    !ls\n", "if x:\n    0  \n"),
        ("!pip install a \\\n  b\nx", "0               \n   \nx"),
        ("!a \\\r\n  b\r\nx\r\n", "0   \r\n   \r\nx\r\n"),
        ("files = !ls *.py\nx", "files = __      \nx"),
        ("n = %timeit -o f()", "n = __            "),
        ("%time net = Net()\nx", "0;    net = Net()\nx"),
        ("%time for x in y: f(x)", "0                     "),
        ("%timeit f(x)", "0           "),
        ("%%time\nx = 1", "0     \nx = 1"),
        ("\n%%capture out\n%%time\nx", "\n0            \n      \nx"),
        ("# note\n%%time\nx", "# note\n0     \nx"),
        ("y = (x\n% 7)", None),
        ("y = x \\\n% 7", None),
        ("y = [\n  !\n]", None),
        ('s = """\n!ls\n%cd\n"""', None),
        ("s = 'a\\\n!ls'", None),
        ("plt.plot(x);", None),
        ("s = 'really?'\n# really?\nx = {  # ?\n}", None),
        ("x %= 3\ny != 4\nz = x % 5", None),
        ("await f()\nasync for x in y:\n    pass", None),
        ("x = f'{a!r}'\nprint(f'{b}' '?')", None),
        ("cd ..", "0    "),
        ("pip install -q torch\n", "0                   \n"),
        ("git clone a/b\n# then\ncd b\n", "0            \n      \n    \n"),
        ("git clone a/b\nx = 1", None),
        ("ls", None),
        ("cd = 3", None),
        ("cd /content\nx = 1", None),
        ("/f 1\n,f a\n;f a", "0   \n0   \n0   "),
        ("print('\\d')\n%time print('\\d')", "print('\\d')\n0;    print('\\d')"),
        ("", None),
    ],
)
def test_commands_become_python_of_the_same_length(cell: str, python: str | None) -> None:
    found = masked(cell)
    assert found is not None
    assert found.code == (cell if python is None else python)


@pytest.mark.parametrize("cell", ["%%bash\nls", "\n\n%%writefile a.py\nx", "%%timeit\nf()", "%%!"])
def test_a_cell_that_is_no_python_is_left_out(cell: str) -> None:
    assert masked(cell) is None


LINES = st.sampled_from(
    [
        "x = 1",
        "!ls",
        "%time f()",
        "f(",
        ")",
        "'''",
        "\\",
        "if x:",
        "    %cd a",
        "x?",
        "a = !b",
        "#'",
    ]
)


@given(st.lists(LINES), st.sampled_from(["\n", "\r\n", "\r"]))
def test_no_character_moves(lines: list[str], end: str) -> None:
    cell = end.join(lines)
    found = masked(cell)
    assert found is not None
    assert len(found.code) == len(cell)
    hidden = {at for mask in found.masks for at in range(mask.start, mask.end)}
    assert all(
        found.code[at] == cell[at] for at in range(len(cell)) if at not in hidden or cell[at] == end
    )
    again = masked(found.code)
    assert again is not None
    assert again.code == found.code


def test_what_is_left_parses() -> None:
    found = masked("%%time\nimport a\n!ls\nif a:\n    x = !pwd\n    %cd x\nelse:\n    a?\n")
    assert found is not None
    ast.parse(found.code)
