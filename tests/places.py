"""One script at several places: between other code where fixes seldom have to write."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from textwrap import indent
from typing import Final

__all__ = ["PLACES"]

Place = Callable[[str], str]

_SIMPLE: Final = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Delete, ast.Raise,
    ast.Pass, ast.Assert, ast.Import, ast.ImportFrom, ast.Global, ast.Break, ast.Continue,
)  # fmt: skip
_BLOCKS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _edited(text: str, edits: Iterator[tuple[int, str]]) -> str:
    """Put texts into a text at offsets."""
    for at, added in sorted(edits, reverse=True):
        text = text[:at] + added + text[at:]
    return text


def _lines(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _statements(text: str) -> Iterator[tuple[ast.stmt, int, int]]:
    """Yield the simple statements that begin a line, and where each begins and ends."""
    starts, lines = _lines(text), text.encode().splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _SIMPLE) and not _is_docstring(node):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            before = lines[node.lineno - 1][: node.col_offset].decode()
            last = lines[node.end_lineno - 1][: node.end_col_offset].decode()
            if not before.strip():
                yield (
                    node,
                    starts[node.lineno - 1] + len(before),
                    starts[node.end_lineno - 1] + len(last),
                )


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _behind(added: str) -> Place:
    """Put something behind every simple statement."""
    return lambda text: _edited(text, ((end, added) for _, _, end in _statements(text)))


def _before(added: str) -> Place:
    """Put something before every simple statement."""
    return lambda text: _edited(
        text, ((start, added) for node, start, _ in _statements(text) if not _is_future(node))
    )


def _without_imports(text: str) -> str:
    """Take out the imports at the top, as where a star brings all names along."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and node.lineno == node.end_lineno:
            if ";" not in lines[node.lineno - 1]:
                lines[node.lineno - 1] = ""
    return "".join(lines).lstrip("\n")


def _under(head: str, tail: str = "", steps: int = 1) -> Place:
    """Put a whole script under headers."""
    return lambda text: f"{head}\n{indent(text, '    ' * steps)}\n{tail}"


def _at_definitions(added: str) -> Place:
    """Put lines before every function and class, its decorators included."""

    def place(text: str) -> str:
        lines = text.splitlines(keepends=True)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, _BLOCKS):
                row = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                white = re.match(r"[ \t]*", lines[row - 1])
                assert white is not None
                lines[row - 1] = indent(added, white[0]) + lines[row - 1]
        return "".join(lines)

    return place


def _commented(text: str) -> str:
    """Put a comment of types behind every line that ends a simple statement."""
    rows = {node.end_lineno for node, _, _ in _statements(text)}
    return "".join(
        f"{line.rstrip()}  # type: ignore\n" if row in rows and "#" not in line else line
        for row, line in enumerate(text.splitlines(keepends=True), 1)
    )


PLACES: dict[str, Place] = {
    "before a semicolon": _behind(";"),
    "before a semicolon and a blank": _behind(" ; "),
    "before a semicolon and a comment": _behind(";  # why"),
    "before another statement": _behind("; pass"),
    "behind another statement": _before("pass; "),
    "before a backslash": _behind(" \\\n"),
    "behind a backslash": _before("\\\n"),
    "without imports": _without_imports,
    "without imports, behind a docstring": lambda text: f'"""Words."""\n{_without_imports(text)}',
    "without imports, behind a star": lambda text: f"from mine import *\n{_without_imports(text)}",
    "behind a docstring": lambda text: f'"""Words."""; one = 1\n{text}',
    "behind a future": lambda text: f"from __future__ import annotations\n{text}",
    "behind a future and more": lambda t: f"from __future__ import annotations; import os\n{t}",
    "behind an encoding": lambda text: f"#!/usr/bin/python\n# -*- coding: utf-8 -*-\n{text}",
    "behind a form feed": lambda text: f"\f{text}",
    "behind form feeds": _at_definitions("\f\n"),
    "behind decorators": _at_definitions("@mine\n# why\n"),
    "beside comments on types": _commented,
    "without an end of the line": lambda text: text.rstrip("\n"),
    "in a function": _under("def run():"),
    "in an async function": _under("async def run():"),
    "in a class": _under("class Mine:"),
    "in a method": _under("class Mine:\n    def run(self):", steps=2),
    "in a try": _under("try:", "finally: pass\n"),
    "in an except": _under("try: pass\nexcept ImportError as error:", "else: one = 1\n"),
    "in a match": _under("match one:\n    case 1:", steps=2),
    "in an if": _under("if one: two = 2\nelse:"),
    "in a with": _under("with one as two, \\\n     three:"),
    "in a loop": _under("while True:", "    break\nelse: pass\n"),
    "behind an if for types": lambda text: (
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n{text}"
    ),
    "behind a guarded import": lambda text: (
        f"try: import torch\nexcept ImportError: torch = None\n{text}"
    ),
    "behind a function": lambda text: f"def one(): return 1\n{text}",
    "before a global": lambda text: (
        f"def one():\n    global torch, os, F, math\n    torch = 1\n{text}"
    ),
    "behind a lambda": lambda text: (
        f"one = lambda x=(y := 1), *z: f'{{x!r:>{{y}}}}'; del one\n{text}"
    ),
    "twice": lambda text: f"{text}\n{text}",
}
