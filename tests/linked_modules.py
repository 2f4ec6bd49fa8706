"""Views of small programs that are given as the texts of their modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import pairwise

from torchlint.semantic.scope.target import Target
from torchlint.semantic.script import Script
from torchlint.semantic.view import Excerpt, LinkedModule, Symbol, View
from torchlint.source import Source

__all__ = ["parse", "view"]


def parse(
    texts: Mapping[str, str],
    path: str,
    target: Target | None = None,
    called_unseen: frozenset[Symbol] = frozenset(),
) -> Script:
    """Parse one of some modules together with all others."""
    seen = view(texts, path)._replace(called_unseen=called_unseen)
    return Script.parse(Source(path, texts[path]), target, None, seen)


def view(texts: Mapping[str, str], path: str, unseen: frozenset[str] = frozenset()) -> View:
    """Return the view of one of some modules: whole modules, found from the root alone."""
    modules = {each: ast.parse(text) for each, text in texts.items()}
    linked = []
    for other, text in texts.items():
        if other != path:
            names, stars = _links(modules, other)
            linked.append(LinkedModule(other, tuple(_excerpts(text)), names, stars))
    names, stars = _links(modules, path)
    return View(path, tuple(linked), names, stars, unseen)


def _excerpts(text: str) -> Iterator[Excerpt]:
    """Yield the whole lines of each top-level statement."""
    lines = text.splitlines(keepends=True)
    starts = [_first_row(node) for node in ast.parse(text).body]
    for row, end in pairwise([*sorted(set(starts)), len(lines) + 1]):
        yield Excerpt(row, "".join(lines[row - 1 : end - 1]))


def _first_row(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _links(
    modules: Mapping[str, ast.Module], path: str
) -> tuple[dict[str, Symbol], dict[str, Symbol]]:
    """Return the symbols behind the imports of a module, by name and by star."""
    names: dict[str, Symbol] = {}
    stars: dict[str, Symbol] = {}
    for node in ast.walk(modules[path]):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names.update(_members(modules, alias.name, alias.name))
        elif isinstance(node, ast.ImportFrom):
            spelled = "." * node.level + (node.module or "")
            joint = "" if spelled.endswith(".") else "."
            for alias in node.names:
                whole = f"{spelled}{joint}{alias.name}"
                found = _members(modules, node.module or "", "")
                if alias.name == "*":
                    stars.update((name[1:], symbol) for name, symbol in found.items())
                elif f".{alias.name}" in found:
                    names[whole] = found[f".{alias.name}"]
                else:
                    names.update(_members(modules, whole.lstrip("."), whole))
    return names, stars


def _members(modules: Mapping[str, ast.Module], dotted: str, spelled: str) -> dict[str, Symbol]:
    """Return the symbols of a module by their qualified names."""
    path = f"{dotted.replace('.', '/')}.py"
    if path not in modules:
        return {}
    return {f"{spelled}.{name}": Symbol(path, name) for name in _bound(modules[path])}


def _bound(module: ast.Module) -> Iterator[str]:
    """Yield the names that are bound at the top level of a module."""
    for node in module.body:
        for each in ast.walk(node) if not isinstance(node, ast.FunctionDef | ast.ClassDef) else ():
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                yield each.id
            elif isinstance(each, ast.alias) and each.name != "*":
                yield each.asname or each.name.partition(".")[0]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
