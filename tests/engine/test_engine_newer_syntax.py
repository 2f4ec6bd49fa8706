"""What newer versions of Python brought is told from what is wrong in every version."""

from __future__ import annotations

import sys

import pytest

from torchlint import check
from torchlint.engine.newersyntax import needed_version, parses

RUNNING = sys.version_info[:2]

NEWER = {
    'x = f"{d["a"]}"\n': (3, 12),
    'x = f"{"a" + f"{"b"}"}"\n': (3, 12),
    "x = f\"{'\\n'.join(a)}\"\n": (3, 12),
    'x = f"{\n    1  # one\n}"\n': (3, 12),
    'x = "a" f"{d["a"]:>{w["b"]}}" "b"\n': (3, 12),
    'x = f"{a["b"]!r:{"0"}}" + f"{a != {1: "x"}=}"\n': (3, 12),
    "type A = int\n": (3, 12),
    "if x:\n    y = 1; type A[T, *Ts, **P] = dict[T, int]\n": (3, 12),
    "def f[T: (int, str), *Ts](x: T) -> T: pass\n": (3, 12),
    "class A[T](B): pass\n": (3, 12),
    "class A[T = int](B): pass\n": (3, 13),
    'x = t"{1}"\n': (3, 14),
    'x = rt"{d["a"]}\\w"\n': (3, 14),
    "try:\n    pass\nexcept ValueError, os.Error:\n    pass\n": (3, 14),
    'type A = int\nx = t"{1}"\n': (3, 14),
    "try:\n    pass\nexcept* ValueError:\n    pass\n": (3, 11),
}
WRONG = (
    "def f(:\n",
    'x = f"{x"\n',
    'x = f"{d["a"}"\n',
    'x = f"{}"\n',
    'x = f"{a b}"\n',
    'x = f"{d["a"]}"\ny = (\n',
    'x = f"{d["a"]}"\nprint "b"\n',
    'x = f"{d["a"] d["b"]}"\n',
    'x = f"}{d["a"]}"\n',
    'x = f"{a!z}"\n',
    'x = t"{a"\n',
    "x = 'a\n",
    "type A int\n",
    "type A[T T] = int\n",
    "type A[] = int\n",
    "class A[T:](B): pass\n",
    "def f[](x): pass\n",
    "def f[T(x): pass\n",
    "try:\n    pass\nexcept ValueError, error:\n    pass\n",
    "try:\n    pass\nexcept (A, B), error:\n    pass\n",
    "try:\n    pass\nexcept A, B as c:\n    pass\n",
    "x.cuda(async=True)\n",
    "x = 0777\n",
    "]\n",
    "match x:\ncase 1: pass\n",
)


@pytest.mark.parametrize(("text", "needed"), NEWER.items())
def test_newer_syntax_is_told_by_its_version(text: str, needed: tuple[int, int]) -> None:
    expected = needed if needed > RUNNING else None
    assert (None if parses(text) else needed_version(text, parses)) == expected
    assert parses(text) == (expected is None)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_in_every_version_is_none(text: str) -> None:
    assert not parses(text)
    assert needed_version(text, parses) is None


@pytest.mark.parametrize("opening", ["(", "[", 'f"{', "x = t'{f'{"])
def test_depth_is_no_matter(opening: str) -> None:
    assert needed_version(opening * 20_000, parses) is None


@pytest.mark.skipif(RUNNING >= (3, 14), reason="this Python knows template strings")
def test_the_message_says_what_to_do() -> None:
    (found,) = check('import torch\nx = t"{1}"\n')
    assert found.code == "TL001"
    running = ".".join(map(str, RUNNING))
    assert found.message == (
        f"torchlint cannot read this file under Python {running}: its syntax is that of "
        "Python 3.14, so no rule checked it; run torchlint under Python 3.14"
    )
    assert found.impact == "low"
