"""Write a script that runs the same with its training in a class: what it needs, in attributes."""

from __future__ import annotations

import ast
from typing import Final, NamedTuple, cast

import libcst as cst
from reshaping import Reshaped
from restructuring import goes_backward, has_long_text, joined, parsed

__all__ = ["kept_on_self"]

_CLASS: Final = "Trainer"
_INDENT: Final = " " * 4


class _Parts(NamedTuple):
    """A main function in two parts, and the names that the second takes from the first."""

    main: ast.FunctionDef
    setup: list[ast.stmt]
    rest: list[ast.stmt]
    shared: frozenset[str]


def kept_on_self(text: str) -> Reshaped | None:
    """Make what `main` sets up in a class, whose method trains with its attributes."""
    tree, lines = parsed(text)
    parts = _parts(tree) if tree is not None else None
    if parts is None or any(has_long_text(line) for line in parts.main.body):
        return None
    lines = _on_self(text, parts).splitlines(keepends=True)
    first, split, last = (
        parts.setup[0].lineno,
        _begin(parts, lines),
        parts.main.end_lineno or parts.main.lineno,
    )
    header = [
        (f"class {_CLASS}:\n", 0),
        (f"{_INDENT}def __init__(self):\n", 0),
    ]
    body = {row: [(_deeper(lines[row - 1]), row)] for row in range(first, last + 1)}
    before = {split: [("\n", 0), (f"{_INDENT}def train(self):\n", 0)]}
    instead = {parts.main.lineno: header, **body}
    run = [("\n", 0), ("def main():\n", 0), (f"{_INDENT}return {_CLASS}().train()\n", 0)]
    instead[last] += run
    return joined(lines, before, instead)


def _parts(tree: ast.Module) -> _Parts | None:
    """Return the parts of a `main` without parameters, before and from the loop that trains."""
    mains = [
        line for line in tree.body if isinstance(line, ast.FunctionDef) and line.name == "main"
    ]
    if len(mains) != 1 or ast.dump(mains[0].args) != ast.dump(_NOTHING) or mains[0].decorator_list:
        return None
    main = mains[0]
    trains = _trains(tree)
    start = next((n for n, line in enumerate(main.body) if _is_training(line, trains)), 0)
    setup, rest = main.body[:start], main.body[start:]
    if not setup or _cannot_move(main):
        return None
    shared = _names(setup, ast.Store) & _names(rest)
    if not shared or shared & _hidden(main):
        return None
    return _Parts(main, setup, rest, frozenset(shared))


_NOTHING: Final = ast.arguments(
    posonlyargs=[], args=[], vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[]
)


def _trains(tree: ast.Module) -> set[str]:
    """Return the names of functions that go backward."""
    return {
        line.name
        for line in tree.body
        if isinstance(line, ast.FunctionDef) and goes_backward(list(ast.walk(line)))
    }


def _is_training(line: ast.stmt, trains: set[str]) -> bool:
    if not isinstance(line, (ast.For, ast.While, ast.With)):
        return False
    nodes = list(ast.walk(line))
    called = {
        node.func.id
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return goes_backward(nodes) or bool(called & trains)


def _cannot_move(main: ast.FunctionDef) -> bool:
    """Return whether a function has what depends on its own scope."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal)
    nodes = [node for line in main.body for node in ast.walk(line)]
    return any(isinstance(node, (*scopes, ast.Delete, ast.NamedExpr)) for node in nodes)


def _hidden(main: ast.FunctionDef) -> set[str]:
    """Return the names that comprehensions and parameters bind, and those of imports."""
    found: set[str] = set()
    for node in ast.walk(main):
        if isinstance(node, ast.comprehension):
            found |= _names([node.target])
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return found


def _names(nodes: list[ast.stmt] | list[ast.expr], kind: type = ast.expr_context) -> set[str]:
    return {
        node.id
        for line in nodes
        for node in ast.walk(line)
        if isinstance(node, ast.Name) and isinstance(node.ctx, kind)
    }


def _begin(parts: _Parts, lines: list[str]) -> int:
    """Return the row at which the second part begins, with the comments above it."""
    row = parts.rest[0].lineno
    while lines[row - 2].strip().startswith("#"):
        row -= 1
    return row


def _deeper(line: str) -> str:
    return f"{_INDENT}{line}" if line.strip() else line


def _on_self(text: str, parts: _Parts) -> str:
    """Return a text whose main function has attributes instead of the shared names."""
    tree = cst.parse_module(text)
    place = next(
        n
        for n, line in enumerate(tree.body)
        if isinstance(line, cst.FunctionDef) and line.name.value == "main"
    )
    main = tree.body[place].visit(_Attributes(parts.shared))
    body = [*tree.body[:place], cast("cst.FunctionDef", main), *tree.body[place + 1 :]]
    return tree.with_changes(body=body).code


class _Attributes(cst.CSTTransformer):
    """Replace names by attributes of `self`."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self._names = names

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        if original_node.value not in self._names:
            return updated_node
        return cst.Attribute(
            cst.Name("self"), cst.Name(original_node.value), lpar=original_node.lpar,
            rpar=original_node.rpar,
        )  # fmt: skip

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)
