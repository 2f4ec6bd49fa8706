"""Scripts in which a few values are made of others than before, of themselves among them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random
from typing import TypeGuard

from circles import MAKERS

__all__ = ["rewired"]

_OWN = 0.7
"""How often an assignment takes its own target instead of any other."""


def rewired(text: str, chance: Random) -> str:
    """Put names of a script in the place of other expressions; the text itself if none fits."""
    tree, starts = ast.parse(text), [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    targets = sorted(set(_targets(tree)))
    if not targets:
        return text
    made, last = text, len(text)
    for node, new in sorted(_choices(tree, targets, chance), key=lambda each: _place(each[0])):
        start, end = _span(node, starts)
        if end > last:
            continue
        if chance.random() < 0.5:
            new = chance.choice(MAKERS).replace("@", new)
        changed = made[:start] + new + made[end:]
        try:
            compile(changed, "rewired.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        made, last = changed, start
    return made


def _targets(tree: ast.Module) -> Iterator[str]:
    """Yield what a script gives values to, and what it can call."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            if isinstance(node.ctx, ast.Store):
                yield ast.unparse(node)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield from (node.name, f"{node.name}()")
        elif isinstance(node, ast.arg):
            yield node.arg


def _choices(
    tree: ast.Module, targets: list[str], chance: Random
) -> Iterator[tuple[ast.expr, str]]:
    """Yield expressions, and what each becomes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and chance.random() < 0.3:
            inner = [each for each in ast.walk(node.value) if _is_read(each)]
            own = chance.random() < _OWN
            yield (
                chance.choice([*inner, node.value]),
                ast.unparse(node.targets[0]) if own else chance.choice(targets),
            )
    holes = [node for node in ast.walk(tree) if _is_read(node)]
    for _ in range(chance.choice([0, 1, 2, 4]) if holes else 0):
        yield chance.choice(holes), chance.choice(targets)


def _is_read(node: ast.AST) -> TypeGuard[ast.expr]:
    plain = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load)
    return plain or isinstance(node, ast.Call)


def _place(node: ast.expr) -> tuple[int, int]:
    """Order expressions from the last to the first."""
    return -node.lineno, -node.col_offset


def _span(node: ast.expr, starts: list[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (
        starts[node.lineno - 1] + node.col_offset,
        starts[node.end_lineno - 1] + node.end_col_offset,
    )
