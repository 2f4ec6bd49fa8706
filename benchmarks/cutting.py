"""Cut a script at its top-level statements into modules that import each other.

    python benchmarks/cutting.py train.py /tmp/cut/train          # data, model, engine and main
    python benchmarks/cutting.py train.py /tmp/cut/train --moved  # everything but the call of main

`cut(text)` returns the modules of a script, or None where a cut would change what it does:
functions that write globals, star imports, modules that would import each other in a circle. Every
line of a module knows its row in the script, so that findings can be compared.
"""

from __future__ import annotations

import argparse
import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DATA: Final = "data_part"
MODEL: Final = "model_part"
ENGINE: Final = "engine_part"
SETTINGS: Final = "settings_part"
MAIN: Final = "main_part"
_ORDER: Final = (DATA, MODEL, SETTINGS, ENGINE, MAIN)
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BATCHING: Final = frozenset({"DataLoader", "Dataset", "IterableDataset", "TensorDataset"})


@dataclass(frozen=True)
class Module:
    """The text of a module, and for each of its rows the row in the script, 0 if it is new."""

    name: str
    text: str
    rows: tuple[int, ...]

    def row(self, row: int) -> int:
        """Return the row in the script of a row of the module, both counted from 1."""
        return self.rows[row - 1] if row <= len(self.rows) else 0


def cut(text: str, *, moved: bool = False) -> tuple[Module, ...] | None:
    """Return the modules of a script; with `moved`, `main` goes to the module of the functions."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    script = _Cut(text, tree, moved=moved)
    return script.modules() if script.is_possible() else None


def write(modules: Iterable[Module], folder: Path) -> list[Path]:
    """Write modules into a folder and return their paths; `main_part.py` is what runs."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for module in modules:
        path = folder / f"{module.name}.py"
        path.write_text(module.text, encoding="utf-8")
        paths.append(path)
    return paths


class _Cut:
    """The top-level statements of a script, and the module to which each goes."""

    def __init__(self, text: str, tree: ast.Module, *, moved: bool) -> None:
        self.lines = text.splitlines(keepends=True)
        self.tree = tree
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.definitions: dict[str, _Definition] = {}
        self.executed: list[ast.stmt] = []
        for line in tree.body:
            if isinstance(line, (ast.Import, ast.ImportFrom)):
                self.imports.append(line)
            elif isinstance(line, _DEFINITIONS):
                self.definitions[line.name] = line
            elif not _is_docstring(line, tree):
                self.executed.append(line)
        self.used = {line: frozenset(_names(line)) for line in tree.body}
        self.settings = self._settings()
        self.homes: dict[str, str] = {
            name: self._home(line, moved=moved) for name, line in self.definitions.items()
        }
        for line in self.settings:
            self.homes.update(dict.fromkeys(_bound(line), SETTINGS))

    def _settings(self) -> list[ast.stmt]:
        """Return the executed statements up to the last one that makes what a definition uses.

        A call alone on a line may go on making it: `parser.add_argument("--lr")`.
        """
        needed = frozenset[str]().union(*(self.used[each] for each in self.definitions.values()))
        bound = set[str]()
        last = 0
        for number, line in enumerate(self.executed, 1):
            bound |= needed.intersection(_bound(line))
            made = self.used[line] if isinstance(line, ast.Expr) else _bound(line)
            if bound.intersection(made):
                last = number
        return self.executed[:last]

    def _home(self, line: _Definition, *, moved: bool) -> str:
        if isinstance(line, ast.ClassDef):
            named = {word for base in line.bases for word in _words(base)}
            return DATA if named & _BATCHING or any("Dataset" in word for word in named) else MODEL
        if line.name == "main":
            return ENGINE if moved else MAIN
        return DATA if _BATCHING & set(_words(line)) else ENGINE

    # -- what can be cut ----------------------------------------------------------------------

    def is_possible(self) -> bool:
        """Return whether the modules run like the script."""
        tops = [*self.definitions, *(name for line in self.executed for name in _bound(line))]
        if any(isinstance(node, ast.Global) for node in ast.walk(self.tree)):
            return False
        if any(alias.name == "*" for line in self.imports for alias in line.names):
            return False
        if any(isinstance(line, ast.ImportFrom) and line.level for line in self.imports):
            return False
        again = {name for name in self.definitions if tops.count(name) > 1}
        if again or any(_is_guard(line) for line in self.settings):
            return False
        later = {name for line in self.executed[len(self.settings) :] for name in _bound(line)}
        if later.intersection(self.homes):
            return False
        return len(self._filled()) > 1 and not self._has_circle()

    def _filled(self) -> set[str]:
        return {*self.homes.values(), MAIN}

    def _needs(self, module: str) -> set[str]:
        used = set[str]().union(*(self.used[line] for line in self._lines_of(module)))
        return {self.homes[name] for name in used if name in self.homes} - {module}

    def _has_circle(self) -> bool:
        left = {module: self._needs(module) for module in self._filled()}
        while left:
            free = [module for module, needs in left.items() if not needs & left.keys()]
            if not free:
                return True
            for module in free:
                del left[module]
        return False

    # -- the modules --------------------------------------------------------------------------

    def modules(self) -> tuple[Module, ...]:
        """Return the modules of the script, the one that runs last."""
        return tuple(self._module(name) for name in _ORDER if name in self._filled())

    def _lines_of(self, module: str) -> Iterator[ast.stmt]:
        for line in self.tree.body:
            if isinstance(line, _DEFINITIONS):
                if self.homes[line.name] == module:
                    yield line
            elif line in self.executed:
                home = SETTINGS if line in self.settings else MAIN
                if home == module:
                    yield line

    def _module(self, module: str) -> Module:
        own = list(self._lines_of(module))
        used = set[str]().union(*(self.used[line] for line in own))
        rows: list[tuple[str, int]] = []
        future = [line for line in self.imports if _is_future(line)]
        wanted = [line for line in self.imports if _imported(line) & used]
        for above in (*future, *wanted):
            rows += self._rows(above)
        for home in _ORDER:
            names = sorted(name for name in used if self.homes.get(name) == home != module)
            if names:
                rows.append((f"from {home} import {', '.join(names)}\n", 0))
        for line in own:
            rows += [("\n", 0), *self._rows(line)]
        return Module(module, "".join(row for row, _ in rows), tuple(at for _, at in rows))

    def _rows(self, line: ast.stmt) -> Iterator[tuple[str, int]]:
        """Yield the lines of a statement with the comments directly above it."""
        first = line.lineno
        if isinstance(line, _DEFINITIONS) and line.decorator_list:
            first = min(first, *(each.lineno for each in line.decorator_list))
        while first > 1 and self.lines[first - 2].startswith("#"):
            first -= 1
        for row in range(first, (line.end_lineno or line.lineno) + 1):
            text = self.lines[row - 1]
            yield text if text.endswith("\n") else f"{text}\n", row


def _is_docstring(line: ast.stmt, tree: ast.Module) -> bool:
    return line is tree.body[0] and ast.get_docstring(tree) is not None


def _is_future(line: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(line, ast.ImportFrom) and line.module == "__future__"


def _is_guard(line: ast.stmt) -> bool:
    return isinstance(line, ast.If) and "__name__" in _names(line.test)


def _imported(line: ast.Import | ast.ImportFrom) -> set[str]:
    return {(alias.asname or alias.name).partition(".")[0] for alias in line.names}


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node may read from its module, too many rather than too few."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and not hasattr(builtins, inner.id):
            yield inner.id


def _words(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr


def _bound(line: ast.stmt) -> set[str]:
    """Return the names that an executed statement binds in its module."""
    return {
        inner.id
        for inner in ast.walk(line)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }


def main() -> None:
    """Cut one script into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("script", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--moved", action="store_true", help="move `main` to the functions")
    args = parser.parse_args()
    modules = cut(args.script.read_text(encoding="utf-8"), moved=args.moved)
    if modules is None:
        raise SystemExit(f"{args.script} cannot be cut without a change of what it does")
    for path in write(modules, args.folder):
        print(path)


if __name__ == "__main__":
    main()
