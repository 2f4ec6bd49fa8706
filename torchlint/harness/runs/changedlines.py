"""The lines of a fixed text that a run must reach, so that its figures are about the fix."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher

from torchlint.harness.plan import Variant

Change = tuple[str, tuple[int, ...]]
"""A file and lines of its fixed text; the change was run where one of the lines was."""


def changes(before: Variant, after: Variant) -> list[Change]:
    """Return the changes of fixed texts that run more than once, or may not run at all.

    Imports, comments and docstrings are left out.
    """
    return [
        (path, lines)
        for path in dict.fromkeys((*before.texts, *before.absent, *after.texts))
        if (text := after.text(path)) is not None
        for lines in _changed(before.text(path) or "", text)
    ]


def not_run(wanted: list[Change], ran: Mapping[str, set[int]]) -> tuple[tuple[str, int], ...]:
    """Return the places of changes of which no line was run."""
    return tuple(
        (path, lines[0]) for path, lines in wanted if ran.get(path, set()).isdisjoint(lines)
    )


def _changed(before: str, after: str) -> Iterator[tuple[int, ...]]:
    try:
        parts = list(_parts(ast.parse(after)))
    except SyntaxError:
        return
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for kind, _, _, first, last in matcher.get_opcodes():
        if kind == "equal":
            continue
        # Where lines were only removed, the next one shows that the place was reached.
        places = range(first + 1, max(last, first + 1) + 1)
        lines = {line for own, shown in parts if set(own) & set(places) for line in shown}
        if lines:
            yield tuple(sorted(lines))


def _parts(tree: ast.Module) -> Iterator[tuple[range, range]]:
    """Yield the lines of each statement without its block, with the lines that show that it ran.

    A function shows it when it is called, not when it is defined.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        end = node.end_lineno or node.lineno
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            yield range(start, node.body[0].lineno), range(node.body[0].lineno, end + 1)
        elif not body:
            yield range(node.lineno, end + 1), range(node.lineno, end + 1)
        elif not isinstance(node, ast.ClassDef):
            head = range(node.lineno, max(body[0].lineno, node.lineno + 1))
            yield head, head
