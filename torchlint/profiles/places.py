"""The lines of the checked files that stand for what a trace names."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Final, NamedTuple

from torchlint.caching import cached_method
from torchlint.profiles.recording import Stack

_FRAME: Final = re.compile(r"(?P<file>.+\.py)\((?P<line>\d+)\): (?P<name>.+)")
"""A function as torch.profiler names it; the line is the first, or one inside."""
_LINE: Final = re.compile(r"(?P<file>.+\.py):(?P<line>\d+)(?: (?P<name>.+))?")
"""A line as Nsight Systems and `verify --save-trace` name it."""
_INSTALLED: Final = re.compile(r"(?:site|dist)-packages[/\\]|[/\\]lib[/\\]python3")
_INNER: Final = 8
"""The levels below a function of the user at which its own call may be named."""
_TRUTH: Final = "bool()"
"""Stands for a test of a condition."""
_DRAW: Final = "__next__"
_CALLED: Final[Mapping[str, tuple[str, ...]]] = {
    "aten::is_nonzero": (_TRUTH, "bool"),
    "aten::item": ("float", "int", "print", "format", "str", "round", _TRUTH, "item"),
    "aten::_local_scalar_dense": ("float", "int", "print", "format", "str", _TRUTH, "item"),
    "aten::to": ("cpu", "cuda", "numpy", "tolist", "to"),
    "aten::_to_copy": ("cpu", "cuda", "numpy", "tolist", "to"),
    "aten::nonzero": ("[]", "where", "argwhere", "nonzero"),
    "aten::index": ("[]",),
}
"""The names that a script may use for an operator; its own, which has a frame, comes last."""


class Place(NamedTuple):
    """Lines of a file of which one is meant."""

    path: str
    lines: frozenset[int] = frozenset()
    called: str = ""


@dataclass(slots=True)
class _Function:
    """A function, or the code outside of all functions."""

    name: str
    first: int
    last: int
    calls: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


class _File:
    """The functions of a file, and the lines of their calls."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._text = text
        self.differs = False
        """Whether the trace was recorded with another version of the file."""

    @cached_property
    def functions(self) -> list[_Function]:
        """All functions, inner ones after those around them."""
        whole = _Function("<module>", 1, self._text.count("\n") + 1)
        found = [whole]
        try:
            tree = ast.parse(self._text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return found
        waiting: list[tuple[ast.AST, _Function]] = [(tree, whole)]
        while waiting:
            node, home = waiting.pop()
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min(node.lineno, *(each.lineno for each in node.decorator_list), 1 << 60)
                home = _Function(node.name, first, node.end_lineno or first)
                found.append(home)
            for name, line in _named(node):
                home.calls[name].add(line)
            waiting += [(child, home) for child in ast.iter_child_nodes(node)]
        return sorted(found, key=lambda each: (each.first, -each.last))

    def function(self, line: int, name: str) -> _Function | None:
        """Return the function at a line, or where lines have moved the one of this name."""
        inside = [it for it in self.functions if it.first <= line <= it.last]
        if name == "<module>":
            return self.functions[0]
        if inside and (name.startswith("<") or inside[-1].name == name):
            return inside[-1]
        self.differs = True
        named = [it for it in self.functions if it.name == name]
        return named[0] if len(named) == 1 else None

    def lines(self, names: tuple[str, ...]) -> frozenset[int]:
        """Return the lines of all calls with one of these names."""
        every = (each.calls[name] for each in self.functions for name in names)
        return frozenset().union(*every)


class Places:
    """The checked files, in which the names of a trace are looked up."""

    def __init__(self, texts: Mapping[str, str], *, by_name: bool) -> None:
        self._files = [_File(path, text) for path, text in texts.items()]
        self._by_name = by_name
        """Whether the trace has no stacks, so that only names of operators can be looked up."""

    @property
    def differing(self) -> list[str]:
        """The files of which the trace shows another version."""
        return [file.path for file in self._files if file.differs]

    @cached_method
    def of(self, stack: Stack) -> list[tuple[Place, ...]]:
        """Return the places of a stack in the files, the innermost first.

        There are several for one call where the trace does not show which it was.
        """
        return list(self._look_up(stack))

    def _look_up(self, stack: Stack) -> Iterator[tuple[Place, ...]]:
        for level, name in enumerate(stack):
            match = _LINE.fullmatch(name) or _FRAME.fullmatch(name)
            file = None if match is None else self._file(match["file"])
            if match is None or file is None:
                continue
            line, called = int(match["line"]), match["name"]
            if match.re is _LINE:
                yield (_at_line(file, line, called),)
            else:
                inner = stack[max(0, level - _INNER) : level]
                yield (_in_function(file, file.function(line, called), inner),)
        if self._by_name:
            names = next((_CALLED[name] for name in reversed(stack) if name in _CALLED), ())
            lines = [(file.path, file.lines(names)) for file in self._files]
            yield tuple(Place(path, found, names[-1]) for path, found in lines if found)

    @cached_method
    def _file(self, name: str) -> _File | None:
        """Return the checked file that a trace names, None for one of a library."""
        fitting = (
            []
            if _INSTALLED.search(name)
            else [
                (file, common)
                for file in self._files
                if (common := _common(PurePath(name), PurePath(file.path)))
            ]
        )
        best = max((common for _, common in fitting), default=0)
        files = [file for file, common in fitting if common == best]
        return min(files, key=lambda it: len(it.path), default=None)


def _common(named: PurePath, path: PurePath) -> int:
    """Return how many parts from the end two paths share, 0 where they cannot be the same file."""
    count = 0
    pairs = zip(reversed(named.parts), reversed(path.parts), strict=False)
    for one, other in pairs:
        if one != other:
            break
        count += 1
    whole = count in (len(named.parts), len(path.parts))
    return count if whole or (named.is_absolute() and count) else 0


def _at_line(file: _File, line: int, called: str | None) -> Place:
    """Return a line that a trace names, or where it has moved those of the same call."""
    name = (called or "").strip(".()")
    lines = file.lines(_CALLED.get(f"aten::{name}", (name,))) if name else frozenset({line})
    if line in lines:
        return Place(file.path, frozenset({line}), name)
    file.differs = True
    return Place(file.path, lines, name)


def _in_function(file: _File, function: _Function | None, inner: Stack) -> Place:
    """Return the lines of a function that call what was running inside it."""
    if function is None:
        return Place(file.path)
    for name in reversed(inner):
        frame = _FRAME.fullmatch(name)
        called = frame["name"] if frame else name
        for each in _CALLED.get(called, (called.removeprefix("aten::"),)):
            if function.calls.get(each):
                return Place(file.path, frozenset(function.calls[each]), each)
        if called.startswith("enumerate(DataLoader)") and function.calls.get(_DRAW):
            return Place(file.path, frozenset(function.calls[_DRAW]), _DRAW)
    return Place(file.path)


def _named(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield what a node calls, with the line."""
    if isinstance(node, ast.Call):
        function = node.func
        name = str(getattr(function, "attr", getattr(function, "id", "")))
        yield ("__next__" if name in ("next", "enumerate") else name), function.end_lineno or 0
    elif isinstance(node, ast.For | ast.comprehension):
        yield _DRAW, node.iter.lineno
    elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        yield _TRUTH, node.test.lineno
    elif isinstance(node, ast.Subscript):
        yield "[]", node.value.end_lineno or 0
