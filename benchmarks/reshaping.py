"""Write a script in another shape that runs the same: other names, other order, a main function."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Reshaped", "renamed", "reordered", "wrapped"]

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_INDENT: Final = 4


@dataclass(frozen=True)
class Reshaped:
    """A text, and for each of its rows the row before; columns are left out if they move."""

    text: str
    rows: tuple[int, ...]
    shifts: Mapping[int, int] = field(default_factory=dict)
    """How far the columns of a row have moved, by the row before."""
    has_columns: bool = True

    def place(self, place: Any) -> Any:
        """Return the place in the script of a place in the text."""
        row = self.rows[place.row - 1] if place.row <= len(self.rows) else 0
        column = place.column - self.shifts.get(row, 0) if self.has_columns else 0
        return place._replace(row=row, column=column)

    def kept_places(self, findings: Mapping[Any, str]) -> dict[Any, str]:
        """Return findings of the script with the columns that are compared."""
        if self.has_columns:
            return dict(findings)
        return {place._replace(column=0): fix for place, fix in findings.items()}


def reordered(text: str) -> Reshaped | None:
    """Reverse each run of functions at the top level that no decorator or default ties together."""
    tree, lines = _parsed(text)
    if tree is None:
        return None
    blocks = list(_blocks(tree, lines))
    order: list[tuple[int, int]] = []
    run: list[tuple[int, int]] = []
    moved = False
    for line, first, last in blocks:
        if isinstance(line, _FUNCTIONS) and not line.decorator_list and not _defaults(line):
            run.append((first, last))
            continue
        moved = moved or len(run) > 1
        order += [*reversed(run), (first, last)]
        run = []
    moved = moved or len(run) > 1
    order += reversed(run)
    rows = [row for first, last in order for row in range(first, last + 1)]
    if not moved or (lines[-1:] and not lines[-1].endswith("\n")):
        return None
    return Reshaped("".join(lines[row - 1] for row in rows), tuple(rows))


def wrapped(text: str) -> Reshaped | None:
    """Move the statements behind the last definition into `main`, called under a guard."""
    tree, lines = _parsed(text)
    if tree is None or any(
        isinstance(line, ast.FunctionDef) and line.name == "main" for line in tree.body
    ):
        return None
    last = max(
        (n for n, line in enumerate(tree.body) if isinstance(line, _DEFINITIONS)), default=-1
    )
    while last + 1 < len(tree.body) and isinstance(
        tree.body[last + 1], (ast.Import, ast.ImportFrom)
    ):
        last += 1
    body = tree.body[last + 1 :]
    named = {
        node.id
        for line in body
        for node in ast.walk(line)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    used = {
        node.id
        for line in tree.body[: last + 1]
        for node in ast.walk(line)
        if isinstance(node, ast.Name)
    }
    if not body or last < 0 or named & used or not _can_indent(body, text) or _is_guarded(body):
        return None
    first = body[0].lineno
    above = range(1, first)
    inner = range(first, len(lines) + 1)
    made = [lines[row - 1] for row in above]
    made.append("def main():\n")
    made += [(" " * _INDENT if lines[row - 1].strip() else "") + lines[row - 1] for row in inner]
    if not made[-1].endswith("\n"):
        made[-1] += "\n"
    made += ["\n", 'if __name__ == "__main__":\n', "    main()\n"]
    return Reshaped("".join(made), (*above, 0, *inner, 0, 0, 0), dict.fromkeys(inner, _INDENT))


def renamed(text: str) -> Reshaped | None:
    """Give locals and parameters of functions neutral names, where nothing else could see them."""
    tree, lines = _parsed(text)
    if tree is None:
        return None
    tops = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    edits: list[tuple[int, int, str, str]] = []
    for function in (line for line in tree.body if isinstance(line, _FUNCTIONS)):
        names = _own_names(function)
        called = {
            word.arg
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
            for word in call.keywords
        }
        names -= called
        fresh = (f"v{number}" for number in range(10_000) if f"v{number}" not in tops)
        new = dict(zip(sorted(names), fresh, strict=False))
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in new:
                edits.append((node.lineno, node.col_offset, node.id, new[node.id]))
            elif isinstance(node, ast.arg) and node.arg in new:
                edits.append((node.lineno, node.col_offset, node.arg, new[node.arg]))
    if not edits or any(not lines[row - 1].isascii() for row, *_ in edits):
        return None
    for row, column, old, word in sorted(set(edits), reverse=True):
        line = lines[row - 1]
        if line[column : column + len(old)] != old:
            return None
        lines[row - 1] = line[:column] + word + line[column + len(old) :]
    return Reshaped("".join(lines), tuple(range(1, len(lines) + 1)), has_columns=False)


def _own_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that are bound in a function and in no function inside it."""
    if any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in ast.walk(function)):
        return set()
    inner = [
        node
        for node in ast.walk(function)
        if isinstance(node, (*_DEFINITIONS, ast.Lambda)) and node is not function
    ]
    hidden = {arg.arg for each in inner for arg in ast.walk(each) if isinstance(arg, ast.arg)}
    hidden |= {
        node.id
        for each in inner
        for node in ast.walk(each)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    hidden |= {each.name for each in inner if isinstance(each, _DEFINITIONS)}
    quoted = {
        word
        for node in ast.walk(function)
        if isinstance(node, ast.JoinedStr)
        for word in _names(node)
    }
    stored = {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    arguments = function.args
    stored |= {arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    return {name for name in stored - hidden - quoted if not hasattr(builtins, name)}


def _names(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id


def _parsed(text: str) -> tuple[ast.Module | None, list[str]]:
    try:
        return ast.parse(text), text.splitlines(keepends=True)
    except (SyntaxError, ValueError, RecursionError):
        return None, []


def _blocks(tree: ast.Module, lines: list[str]) -> Iterator[tuple[ast.stmt | None, int, int]]:
    """Yield the statements of a module with their rows, comments and blank lines above included."""
    above = 0
    for line in tree.body:
        last = line.end_lineno or line.lineno
        yield line, above + 1, last
        above = last
    if above < len(lines):
        yield None, above + 1, len(lines)


def _defaults(line: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return bool(line.args.defaults or any(line.args.kw_defaults))


def _can_indent(body: list[ast.stmt], text: str) -> bool:
    """Return whether no string of some statements goes over several rows."""
    return (
        not any(
            isinstance(node, (ast.Constant, ast.JoinedStr)) and node.lineno != node.end_lineno
            for line in body
            for node in ast.walk(line)
        )
        and "\\\n" not in text
    )


def _is_guarded(body: list[ast.stmt]) -> bool:
    return any(isinstance(line, ast.If) and "__name__" in _names(line.test) for line in body)
