"""What a text reads that only the text before it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from torchlint.engine.parsing import syntax_tree
from torchlint.source import Source

__all__ = ["imports_of", "unimported"]


def unimported(before: Source, after: Source) -> str | None:
    """Name something that `after` reads and only `before` imports, None if there is nothing.

    Both have to parse.
    """
    now = syntax_tree(after)
    bound = _imported(now)
    lost = _imported(syntax_tree(before)) - bound
    if not lost or "*" in bound:
        return None
    read: set[str] = set()
    for node in ast.walk(now):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            read.add(node.id)
        else:
            bound.update(getattr(node, name, None) or "" for name in _BINDING.get(type(node), ()))
    return min(lost & read - bound, default=None)


_BINDING: Final[dict[type[ast.AST], tuple[str, ...]]] = {
    ast.Name: ("id",),
    ast.arg: ("arg",),
    ast.FunctionDef: ("name",),
    ast.AsyncFunctionDef: ("name",),
    ast.ClassDef: ("name",),
    ast.ExceptHandler: ("name",),
    ast.MatchAs: ("name",),
    ast.MatchStar: ("name",),
    ast.MatchMapping: ("rest",),
}
"""The fields of nodes that give a word a meaning; a name that is read gives none."""


def imports_of(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Give the statements that import, in no order."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def _imported(tree: ast.Module) -> set[str]:
    """Give the words that a file imports things under."""
    aliases = (alias for node in imports_of(tree) for alias in node.names)
    return {alias.asname or alias.name.partition(".")[0] for alias in aliases}
