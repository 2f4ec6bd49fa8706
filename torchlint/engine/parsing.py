"""Parsing: CPython's parser first, for its error messages, then LibCST's."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final

from torchlint.engine.newersyntax import needed_version, parses
from torchlint.semantic.view import ALONE, View
from torchlint.source import Position, Source

if TYPE_CHECKING:
    from torchlint.semantic.scope.target import Target
    from torchlint.semantic.script import Script


class UnparsableError(Exception):
    """A text that does not parse; `reason` says why, `position` where.

    `newer`: a newer Python than the one that runs can parse it.
    """

    def __init__(self, reason: str, position: Position, newer: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position
        self.newer = newer


def syntax_tree(source: Source) -> ast.Module:
    """Parse a text with CPython; raises `UnparsableError`."""
    tree: ast.Module = _compiled(source, ast.PyCF_ONLY_AST)
    return tree


def is_ordinary(tree: ast.Module) -> bool:
    """Return whether the syntax tree is no deeper than that of hand-written files."""
    level: list[ast.AST] = [tree]
    for _ in range(_ORDINARY):
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    return not level


_ORDINARY: Final = 100
"""The depth of the syntax tree that hand-written files do not exceed."""


def syntax_problem(source: Source) -> UnparsableError | None:
    """Return why CPython cannot parse a text, None if it can."""
    return _problem(source, ast.PyCF_ONLY_AST)


def compile_problem(source: Source) -> UnparsableError | None:
    """Return why CPython cannot compile a text, None if it can."""
    return _problem(source, 0)


def parse_script(source: Source, target: Target, tree: ast.Module, view: View = ALONE) -> Script:
    """Return the semantic model of a text that CPython parsed, with what `view` links to it.

    Raises `UnparsableError`.
    """
    from libcst import ParserSyntaxError

    from torchlint.semantic.script import Script

    try:
        return Script.parse(source, target, tree, view)
    except ParserSyntaxError as error:
        reason = f"LibCST cannot read this, though Python can: {error.message}"
        raise UnparsableError(
            reason, _inside(source, error.raw_line, error.raw_column + 1)
        ) from None
    except (RecursionError, MemoryError):
        raise UnparsableError(_TOO_DEEP, Position(1, 1)) from None


_TOO_DEEP: Final = "the code is nested too deeply to be analyzed"


def _problem(source: Source, flags: int) -> UnparsableError | None:
    try:
        _compiled(source, flags)
    except UnparsableError as problem:
        return problem
    return None


def _compiled(source: Source, flags: int) -> Any:
    """Compile a text; raises `UnparsableError`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if source.is_notebook else 0
            return compile(source.text, source.path, "exec", flags, dont_inherit=True)
    except SyntaxError as error:
        position = _inside(source, error.lineno or 1, error.offset or 1)
        newer = _newer(source.text)
        said = newer or _in_clear_words(error.msg, source.line(position.row))
        raise UnparsableError(said, position, bool(newer)) from None
    except (RecursionError, MemoryError):
        raise UnparsableError(_TOO_DEEP, Position(1, 1)) from None
    except ValueError as error:
        raise UnparsableError(str(error), Position(1, 1)) from None


def _inside(source: Source, row: int, column: int) -> Position:
    """Return the nearest position inside the text; parsers may point behind its end."""
    row = min(max(row, 1), len(source.line_starts))
    return Position(row, min(max(column, 1), len(source.line(row)) + 1))


def _newer(text: str) -> str | None:
    """Return the message that names the Python version a text needs, None if it needs none."""
    needed = needed_version(text, parses)
    if needed is None:
        return None
    version = f"Python {needed[0]}.{needed[1]}"
    running = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    return (
        f"torchlint cannot read this file under {running}: its syntax is that of {version}, so no "
        f"rule checked it; run torchlint under {version}"
    )


def _in_clear_words(message: str, line: str) -> str:
    """Return a clearer message for known kinds of syntax errors, else CPython's own."""
    for pattern, advice in _KNOWN:
        if re.search(pattern, line):
            return advice if advice is _PYTHON_2 else f"{message}: {advice}"
    return message


_PYTHON_2: Final = "this is Python 2, which torchlint cannot read"
"""The reason for texts that print or raise as Python 2 did."""
_KNOWN: Final = (
    (r"\basync\s*=", "`async` is a keyword since Python 3.7, write `non_blocking=` instead"),
    (r"^\s*(print|exec)\s+[^\s=(]", _PYTHON_2),
    (r"^\s*except\s+[\w.]+\s*,\s*[a-z_]\w*\s*:", _PYTHON_2),
    (r"^\s*raise\s+\w+\s*,", _PYTHON_2),
    (r"^(<{7}|={7}|>{7})( |$)", "a merge conflict was left in the file"),
    (r"^\s*[%!]\w", "a notebook's magic or shell line is not Python"),
)
