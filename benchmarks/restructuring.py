"""Write a script in another structure that runs the same: steps in functions, options passed on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from reshaping import Reshaped

__all__ = [
    "Rows",
    "can_move",
    "has_long_text",
    "joined",
    "locals_of",
    "parsed",
    "passed_on",
    "step_of",
    "stepped",
    "trains",
]

_LEAVES: Final = (
    ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global,
    ast.Nonlocal, ast.Delete, ast.FunctionDef, ast.Lambda, ast.ClassDef,
)  # fmt: skip
"""What the body of a loop cannot take along into a function."""
_INDENT: Final = " " * 4
Rows = dict[int, list[tuple[str, int]]]
"""What comes before or instead of a row: text, and the row that it was, 0 for none."""


class _Step(NamedTuple):
    """A loop whose body becomes a function, what it takes, and what it gives back."""

    top: ast.stmt
    loop: ast.For
    taken: list[str]
    given: list[str]


def stepped(text: str) -> Reshaped | None:
    """Move the body of each loop that goes backward into a function that the loop calls."""
    tree, lines = parsed(text)
    steps = list(_steps(tree)) if tree is not None else []
    if not steps or any(has_long_text(step.loop) for step in steps):
        return None
    before: Rows = {}
    instead: Rows = {}
    for number, (top, loop, taken, given) in enumerate(steps, 1):
        first, indent = loop.body[0].lineno, loop.body[0].col_offset
        rows = range(first, _end(loop) + 1)
        if any(lines[row - 1].strip() and lines[row - 1][:indent].strip() for row in rows):
            return None
        call = f"step_{number}({', '.join(taken)})"
        body = [(_INDENT + lines[row - 1][indent:], row) for row in rows]
        body += [(f"{_INDENT}return {', '.join(given)}\n", 0)] if given else []
        before.setdefault(_start(top), []).extend([(f"def {call}:\n", 0), *body])
        instead |= {row: [] for row in rows}
        held = f"{', '.join(given)} = " if given else ""
        instead[first] = [(f"{' ' * indent}{held}{call}\n", 0)]
    return joined(lines, before, instead)


def passed_on(text: str) -> Reshaped | None:
    """Give the keywords of calls that make something through a dictionary."""
    tree, lines = parsed(text)
    instead: Rows = {}
    assigns = [
        line for line in ast.walk(tree or ast.Module([], [])) if isinstance(line, ast.Assign)
    ]
    for line in assigns:
        call, row, end = line.value, line.lineno, line.value.end_col_offset or 0
        if not isinstance(call, ast.Call) or row != line.end_lineno:
            continue
        text_of = lines[row - 1]
        named = [each for each in call.keywords if each.arg is not None]
        if not named or len(named) != len(call.keywords) or not _makes(call):
            continue
        if text_of[: line.col_offset].strip() or row in instead:
            continue
        name, start = f"options_{row}", named[0].col_offset
        made = f"{' ' * line.col_offset}{name} = dict({text_of[start : end - 1]})\n"
        used = f"{text_of[:start]}**{name}){text_of[end:]}"
        instead[row] = [(made, row), (used, row)]
    return joined(lines, {}, instead) if instead else None


def _steps(tree: ast.Module) -> Iterator[_Step]:
    """Yield the innermost loops with a backward pass, in functions and in the module."""
    for top in tree.body:
        if isinstance(top, ast.ClassDef):
            continue
        function = top if isinstance(top, ast.FunctionDef) else None
        for loop in ast.walk(top):
            if isinstance(loop, ast.For) and can_move(loop):
                yield step_of(tree, top, function, loop)


def step_of(
    tree: ast.Module, top: ast.stmt, function: ast.FunctionDef | None, loop: ast.For
) -> _Step:
    """Return what a function with the body of a loop takes and gives back."""
    inside = range(loop.body[0].lineno, _end(loop) + 1)
    names = [node for line in loop.body for node in ast.walk(line) if isinstance(node, ast.Name)]
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    read = [node.id for node in names]
    drawn = [node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
    around = function or tree
    outside = {
        node.id
        for node in ast.walk(around)
        if isinstance(node, ast.Name) and node.lineno not in inside
    }
    given = [name for name in dict.fromkeys(read) if name in stored & outside and name not in drawn]
    local = locals_of(function) if function is not None else {*drawn, *given}
    taken = [
        name
        for name in dict.fromkeys([*drawn, *read])
        if name in local and name in read and (name not in stored or name in (*given, *drawn))
    ]
    return _Step(top, loop, taken, given)


def can_move(loop: ast.For) -> bool:
    """Return whether a loop goes backward itself, and its body can stand in a function."""
    body = [node for line in loop.body for node in ast.walk(line)]
    loops = [node for node in body if isinstance(node, (ast.For, ast.While))]
    return (
        _goes_backward(body)
        and not any(_goes_backward(list(ast.walk(inner))) for inner in loops)
        and not any(isinstance(node, _LEAVES) for node in body)
        and not loop.orelse
        and loop.body[0].lineno > loop.lineno
    )


def trains(tree: ast.Module) -> set[str]:
    """Return the names of the functions of a module that go backward."""
    return {
        line.name
        for line in tree.body
        if isinstance(line, ast.FunctionDef) and _goes_backward(list(ast.walk(line)))
    }


def _goes_backward(nodes: list[ast.AST]) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in nodes)


def locals_of(function: ast.FunctionDef) -> set[str]:
    """Return the parameters of a function, and what it assigns."""
    given = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    return given | {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _makes(call: ast.Call) -> bool:
    """Return whether a call makes an object: the name of what it calls begins in upper case."""
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return str(name)[:1].isupper()


def has_long_text(node: ast.AST) -> bool:
    """Return whether a string goes over several rows, so that its rows cannot be indented."""
    return any(
        isinstance(inner, (ast.Constant, ast.JoinedStr)) and inner.lineno != inner.end_lineno
        for inner in ast.walk(node)
    )


def joined(
    lines: list[str],
    before: Rows,
    instead: Rows,
) -> Reshaped | None:
    """Return the rows with what comes before some and instead of some, if they still parse."""
    made = [
        piece
        for row, line in enumerate(lines, 1)
        for piece in (*before.get(row, ()), *instead.get(row, [(line, row)]))
    ]
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line, _ in made)
    if parsed(text)[0] is None:
        return None
    return Reshaped(text, tuple(row for _, row in made), has_columns=False)


def _start(line: ast.stmt) -> int:
    """Return the first row of a statement with its decorators."""
    marks: list[ast.expr] = getattr(line, "decorator_list", [])
    return min([line.lineno, *(mark.lineno for mark in marks)])


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def parsed(text: str) -> tuple[ast.Module | None, list[str]]:
    """Return the tree and the rows of a text whose columns are characters."""
    if not text.isascii():
        return None, []
    try:
        return ast.parse(text), text.splitlines(keepends=True)
    except (SyntaxError, ValueError, RecursionError):
        return None, []
