"""The imports of a text, and which of them other modules can import from it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def imports_of(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements, in no particular order."""
    return _imports(tree, ())


def importable(tree: ast.Module) -> dict[str, set[str]]:
    """Return the names that a module binds by imports, and what it imports under each.

    Imports inside functions and classes do not count: other modules cannot import their names.
    """
    found: dict[str, set[str]] = {}
    for node in _imports(tree, _INNER):
        for alias in node.names:
            word = bound_by(alias)
            meaning = alias.name if alias.asname else word
            if isinstance(node, ast.ImportFrom):
                meaning = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            found.setdefault(word, set()).add(meaning)
    return found


def bound_by(alias: ast.alias) -> str:
    """Return the name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]


def _imports(
    tree: ast.AST, outside: tuple[type[ast.stmt], ...]
) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements that are not inside nodes of the types `outside`."""
    blocks = [tree]
    while blocks:
        block = blocks.pop()
        for name in _BLOCKS:
            for node in getattr(block, name, ()):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node
                elif not isinstance(node, outside):
                    blocks.append(node)
