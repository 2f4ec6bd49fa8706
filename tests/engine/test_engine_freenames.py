from __future__ import annotations

import pytest

from torchlint.engine.fixproblem import newly_unbound
from torchlint.source import Source


def _newly_unbound(before: str, after: str) -> str | None:
    return newly_unbound(Source("t.py", before), Source("t.py", after))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("import os\nos.x\n", "os.x\n", "leaves `os` in use and takes its import out"),
        ("x = 1\nx\n", "x\n", "leaves `x` in use and takes what binds it out"),
        ("def f():\n  a = 1\n  a\ndef g(): a = 1\n", "def f(): a\ndef g(): a = 1\n", "leaves `a`"),
        ("def f():\n  a = 1\n  g = lambda: a\n", "def f(): g = lambda: a\n", "leaves `a` in use"),
        ("def f(a): return a\n", "def f(): return a\n", "leaves `a` in use and takes"),
        ("x\nimport os\n", "os.x\nimport os\n", "reads `os` above what binds it"),
        ("f(1)\nimport os\n", "f(os.x)\nimport os\n", "reads `os` above"),
        ("for i in x: 1\nimport os\n", "for i in x: os\nimport os\n", "reads `os` above"),
        ("@f\ndef g(): 1\nimport os\n", "@os.f\ndef g(): 1\nimport os\n", "reads `os` above"),
        ("class A:\n  b = 1\nos = 1\n", "class A:\n  b = os\nos = 1\n", "reads `os` above"),
        ("def f(): 1\nf()\nimport os\n", "def f(): os\nf()\nimport os\n", "reads `os` above"),
        (
            "def g(): f()\ndef f(): 1\ng()\nos = 1\n",
            "def g(): f()\ndef f(): os\ng()\nos = 1\n",
            "reads `os` above",
        ),
        ("y = [1 for x in z]\nos = 1\n", "y = [os for x in z]\nos = 1\n", "reads `os` above"),
    ],
)
def test_a_name_is_freed(before: str, after: str, said: str) -> None:
    assert (_newly_unbound(before, after) or "").startswith(said)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x\nimport os\n", "import os\nos.x\n"),
        ("1\nimport os\n", "def f(): os\nimport os\nf()\n"),
        ("1\nimport os\n", "g = lambda: os\nimport os\n"),
        ("from a import *\n1\nimport os\n", "from a import *\nos\nimport os\n"),
        ("os\nimport os\n", "os.x\nimport os\n"),
        ("1\n", "[x for x in y]\n"),
        ("if a:\n  import os\n1\n", "if a:\n  import os\nos\n"),
        ("try:\n  1\nexcept E as e:\n  1\n", "try:\n  1\nexcept E as e:\n  e\n"),
        ("match a:\n  case [b, *c]: 1\n", "match a:\n  case [b, *c]: b(c)\n"),
        ("1\ndef f():\n  global x\n  x = 1\n", "x\ndef f():\n  global x\n  x = 1\n"),
        ("def f(min): return min\n", "def f(): return min\n"),
        ("def f(): a\ndef g(): a = 1\n", "def f(): a\ndef g(): 1\n"),
        ("class A:\n  def f(self): a = 1\n  a\n", "class A:\n  def f(self): 1\n  a\n"),
        ("x: int = 1\n", "x: Later = 1\nclass Later: 1\n"),
        ("a = 1\n", "a = (b := 1) + b\n"),
        ("class A:\n  b = 1\n", "class A:\n  b = 1\n  c = b\n"),
    ],
)
def test_no_name_is_freed(before: str, after: str) -> None:
    assert _newly_unbound(before, after) is None
