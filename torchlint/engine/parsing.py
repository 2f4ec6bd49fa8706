"""Does a text parse, and if not, why: CPython's parser first, LibCST's after it."""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING, Any, Final

from torchlint.source import Position, Source

if TYPE_CHECKING:
    from torchlint.semantic.script import Script
    from torchlint.semantic.target import Target

__all__ = ["UnparsableError", "compile_problem", "parse_script", "syntax_problem", "syntax_tree"]


class UnparsableError(Exception):
    """A text that does not parse: why, and where."""

    def __init__(self, reason: str, position: Position) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


def syntax_tree(source: Source) -> ast.Module:
    """Give what CPython's parser makes of a text; raises `UnparsableError`."""
    tree: ast.Module = _compiled(source, ast.PyCF_ONLY_AST)
    return tree


def syntax_problem(source: Source) -> UnparsableError | None:
    """Say why CPython's parser refuses a text, None if it takes it."""
    return _problem(source, ast.PyCF_ONLY_AST)


def compile_problem(source: Source) -> UnparsableError | None:
    """Say why CPython refuses to compile a text, None if it does."""
    return _problem(source, 0)


def parse_script(source: Source, target: Target, tree: ast.Module) -> Script:
    """Give the semantic model of a text that CPython took; raises `UnparsableError`."""
    from libcst import ParserSyntaxError

    from torchlint.semantic.script import Script

    try:
        return Script.parse(source, target, tree)
    except ParserSyntaxError as error:
        reason = f"LibCST cannot read this, though Python can: {error.message}"
        raise UnparsableError(
            reason, _inside(source, error.raw_line, error.raw_column + 1)
        ) from None
    except (RecursionError, MemoryError):
        raise UnparsableError(_TOO_DEEP, Position(1, 1)) from None


_TOO_DEEP: Final = "the code is nested too deeply to be analysed"


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
        said = _in_clear_words(error.msg, source.line(position.row))
        raise UnparsableError(said, position) from None
    except (RecursionError, MemoryError):
        raise UnparsableError(_TOO_DEEP, Position(1, 1)) from None
    except ValueError as error:
        raise UnparsableError(str(error), Position(1, 1)) from None


def _inside(source: Source, row: int, column: int) -> Position:
    """Give the place nearest to a parser's that is in the text: parsers point behind its end."""
    row = min(max(row, 1), len(source.line_starts))
    return Position(row, min(max(column, 1), len(source.line(row)) + 1))


def _in_clear_words(message: str, line: str) -> str:
    """Say what a known kind of broken line needs; else what CPython said."""
    for pattern, advice in _KNOWN:
        if re.search(pattern, line):
            return f"{message}: {advice}"
    return message


_OLD: Final = "this is Python 2, which torchlint cannot read"
_KNOWN: Final = (
    (r"\basync\s*=", "`async` is a keyword since Python 3.7, write `non_blocking=` instead"),
    (r"^\s*(print|exec)\s+[^\s=(]", _OLD),
    (r"^\s*except\s+[\w.]+\s*,\s*\w+\s*:", _OLD),
    (r"^\s*raise\s+\w+\s*,", _OLD),
    (r"^(<{7}|={7}|>{7})( |$)", "a merge conflict was left in the file"),
    (r"^\s*[%!]\w", "a notebook's magic or shell line is no Python"),
)
