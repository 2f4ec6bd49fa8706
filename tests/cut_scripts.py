"""Scripts that are cut into the cells of a notebook, and the names that cells read and bind."""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Iterator
from pathlib import Path

from notebook_samples import code, notebook

from torchlint.config import Settings
from torchlint.engine import FixResult, fix_bytes
from torchlint.registry import Registry, load_registry

REGISTRY: Registry = load_registry()
CODES = [head.code for head in REGISTRY.select(Settings(select=("ALL",))) if head.code > "TL002"]
FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "rules").iterdir())
IMPORTS = (ast.Import, ast.ImportFrom)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _names(node: ast.AST, kind: type[ast.expr_context]) -> set[str]:
    """Return the names that a statement reads or stores where it stands."""
    if isinstance(node, FUNCTIONS):
        outside = [
            *node.args.defaults,
            *node.args.kw_defaults,
            *getattr(node, "decorator_list", []),
        ]
        own = {node.name} if kind is ast.Store and not isinstance(node, ast.Lambda) else set()
        return own.union(*(_names(each, kind) for each in outside if each is not None))
    found: set[str] = set()
    if isinstance(node, ast.Name) and isinstance(node.ctx, kind):
        found.add(node.id)
    elif isinstance(node, IMPORTS) and kind is ast.Store:
        found.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ClassDef | ast.ExceptHandler) and kind is ast.Store and node.name:
        found.add(node.name)
    return found.union(*(_names(each, kind) for each in ast.iter_child_nodes(node)))


def free(cells: list[str]) -> set[str]:
    """Return the names that top-level code reads before a statement above has bound them."""
    bound, free = set(dir(builtins)) | {"__name__", "__file__"}, set[str]()
    for statement in (each for cell in cells for each in ast.parse(cell).body):
        inside = _names(statement, ast.Store)
        free |= _names(statement, ast.Load) - bound - inside
        bound |= inside
    return free if "*" not in bound else set()


def cells_of(text: str, late: bool) -> Iterator[str]:
    """Cut a script into a cell for each statement; `late` puts imports above their first use."""
    body = [each for each in ast.parse(text).body if not _is_future(each)]
    imports = [each for each in body if isinstance(each, IMPORTS)] if late else []
    for statement in body:
        if statement in imports:
            continue
        words = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
        for line in [each for each in imports if not words.isdisjoint(_names(each, ast.Store))]:
            imports.remove(line)
            yield _text(text, line)
        yield _text(text, statement)
    yield from (_text(text, line) for line in imports)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _text(text: str, statement: ast.stmt) -> str:
    """Return the lines of a statement."""
    first = min([statement.lineno, *(n.lineno for n in getattr(statement, "decorator_list", []))])
    return "\n".join(text.splitlines()[first - 1 : statement.end_lineno])


def fixed(cells: list[str], codes: tuple[str, ...]) -> FixResult:
    """Fix a notebook of these cells, unsafe fixes included."""
    settings = Settings(select=codes, unsafe_fixes=True)
    data = notebook(*map(code, cells)).encode()
    return fix_bytes(data, "a.ipynb", REGISTRY.select(settings), settings)


def sources(result: FixResult) -> list[str]:
    """Return the cells of a fixed notebook."""
    whole = json.loads(result.after.to_bytes())
    return ["".join(cell["source"]) for cell in whole["cells"]]
