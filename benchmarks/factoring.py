"""Write a script that runs the same with parts in functions and in a class of settings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from attributes import parts_of
from reshaping import Reshaped
from restructuring import Rows, joined, locals_of, parsed

__all__ = ["built_by_function", "computed_by_function", "configured"]

_INDENT: Final = " " * 4
_BOUND_INSIDE: Final = (ast.Lambda, ast.comprehension, ast.NamedExpr, ast.JoinedStr)
_DECLARING: Final = frozenset({"add_argument", "field", "option", "print", "Namespace"})
"""Calls whose keywords say what an option is, or only show something."""


def built_by_function(text: str) -> Reshaped | None:
    """Move what `main` sets up into a function that returns it."""
    parts = parts_of(text)
    if parts is None:
        return None
    if any(isinstance(node, ast.Return) for line in parts.setup for node in ast.walk(line)):
        return None
    names = ", ".join(parts.shared)
    between = [
        (f"{_INDENT}return {names}\n", 0),
        ("\n", 0),
        ("def main():\n", 0),
        (f"{_INDENT}{names} = set_up()\n", 0),
    ]
    instead: Rows = {parts.main.lineno: [("def set_up():\n", 0)]}
    return joined(text.splitlines(keepends=True), {parts.split: between}, instead)


def computed_by_function(text: str) -> Reshaped | None:
    """Move what is assigned to `loss` into functions that return it."""
    tree, lines = parsed(text)
    before: Rows = {}
    instead: Rows = {}
    for top in tree.body if tree is not None else []:
        function = top if isinstance(top, ast.FunctionDef) else None
        known = locals_of(function) if function is not None else _stored(top)
        for line in () if isinstance(top, ast.ClassDef) else ast.walk(top):
            if not isinstance(line, ast.Assign) or not _is_loss(line, lines):
                continue
            read = dict.fromkeys(n.id for n in ast.walk(line.value) if isinstance(n, ast.Name))
            given = ", ".join(name for name in read if name in known)
            row, column = line.lineno, line.value.col_offset
            name = f"compute_loss_{row}"
            start = min([top.lineno, *(m.lineno for m in getattr(top, "decorator_list", []))])
            made = [(f"def {name}({given}):\n", 0)]
            made += [(f"{_INDENT}return {lines[row - 1][column:].rstrip()}\n", row)]
            before.setdefault(start, []).extend(made)
            instead[row] = [(f"{lines[row - 1][:column]}{name}({given})\n", row)]
    return joined(lines, before, instead) if instead else None


def configured(text: str) -> Reshaped | None:
    """Move the literal keywords of calls into the fields of a dataclass."""
    tree, lines = parsed(text)
    found = list(_literals(tree)) if tree is not None else []
    if tree is None or not found:
        return None
    for each in sorted(found, reverse=True):
        row = lines[each.row - 1]
        lines[each.row - 1] = f"{row[: each.start]}settings.{each.name}{row[each.end :]}"
    fields = {each.name: each.value for each in found}
    made = ["from dataclasses import dataclass\n", "@dataclass\n", "class Settings:\n"]
    made += [
        f"{_INDENT}{name}: {type(value).__name__} = {value!r}\n" for name, value in fields.items()
    ]
    made += ["settings = Settings()\n"]
    start = 1
    for line in tree.body:
        is_text = isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
        if not is_text and not isinstance(line, (ast.Import, ast.ImportFrom)):
            break
        start = (line.end_lineno or line.lineno) + 1
    return joined(lines, {start: [(row, 0) for row in made]}, {})


class _Literal(NamedTuple):
    """The place of a literal keyword, and the field that it becomes."""

    row: int
    start: int
    end: int
    name: str
    value: object


def _literals(tree: ast.Module) -> Iterator[_Literal]:
    """Yield the numbers, texts and flags that calls outside texts and signatures are given."""
    signatures = [node for node in ast.walk(tree) if isinstance(node, ast.arguments)]
    marks = [mark for node in ast.walk(tree) for mark in getattr(node, "decorator_list", [])]
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    fixed = {id(inner) for each in (*signatures, *marks, *texts) for inner in ast.walk(each)}
    known: dict[str, object] = {}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or id(call) in fixed or _called(call) in _DECLARING:
            continue
        for word in call.keywords:
            value = word.value
            if word.arg is None or not isinstance(value, ast.Constant) or value.value is None:
                continue
            if value.lineno != value.end_lineno or not isinstance(value.value, (int, float, str)):
                continue
            is_other = known.setdefault(word.arg, value.value) != value.value
            name = f"{word.arg}_{value.lineno}" if is_other else word.arg
            end = value.end_col_offset or value.col_offset
            yield _Literal(value.lineno, value.col_offset, end, name, value.value)


def _called(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else str(getattr(func, "id", ""))


def _stored(top: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(top)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _is_loss(line: ast.Assign, lines: list[str]) -> bool:
    """Return whether a row assigns a computed value to `loss`, and does nothing else."""
    target, value = line.targets[0], line.value
    return (
        len(line.targets) == 1
        and isinstance(target, ast.Name)
        and target.id == "loss"
        and isinstance(value, (ast.Call, ast.BinOp))
        and line.lineno == line.end_lineno
        and not lines[line.lineno - 1][line.end_col_offset :].strip()
        and not any(isinstance(node, _BOUND_INSIDE) for node in ast.walk(value))
    )
