"""Overriding: which methods of subclasses a call on an instance of a base class may run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.syntax.tree import Tree

_ABSTRACT: Final = "abstractmethod"


class Overriding:
    """Relates the methods of a class in view to those that its subclasses in view define."""

    def __init__(
        self,
        tree: Tree,
        lineage: Callable[[cst.ClassDef], list[cst.ClassDef]],
        method: Callable[[cst.ClassDef, str], cst.FunctionDef | None],
    ) -> None:
        self.tree = tree
        self.lineage = lineage
        self.method = method

    @cached_property
    def _subclasses(self) -> dict[cst.ClassDef, list[cst.ClassDef]]:
        """The classes that derive from each class, nearest or not, in source order."""
        found: dict[cst.ClassDef, list[cst.ClassDef]] = {}
        for owner in self.tree.all(cst.ClassDef):
            for base in self.lineage(owner)[1:] if owner.bases else ():
                found.setdefault(base, []).append(owner)
        return found

    def is_base(self, owner: cst.ClassDef) -> bool:
        """Return whether a class in view derives from a class."""
        return owner in self._subclasses

    def inheriting(self, method: cst.FunctionDef, owner: cst.ClassDef) -> Iterator[cst.ClassDef]:
        """Yield the class of a method, and the subclasses in view that do not override it."""
        yield owner
        for each in self._subclasses.get(owner, ()):
            if self.method(each, method.name.value) is method:
                yield each

    def only(self, method: cst.FunctionDef, owner: cst.ClassDef) -> cst.FunctionDef:
        """Return the one override of an abstract method in view, or the method itself."""
        found = self.possible(method, owner)
        return found[0] if len(found) == 1 else method

    def possible(self, method: cst.FunctionDef, owner: cst.ClassDef) -> tuple[cst.FunctionDef, ...]:
        """Return the overrides in view of an abstract method, or the method itself."""
        if not _is_abstract(method):
            return (method,)
        found = [
            override
            for each in self._subclasses.get(owner, ())
            if (override := self.method(each, method.name.value)) is not None
            and not _is_abstract(override)
        ]
        return tuple(dict.fromkeys(found)) or (method,)


def _is_abstract(function: cst.FunctionDef) -> bool:
    """Return whether a method only says that subclasses have to define it."""
    marks = (each.decorator for each in function.decorators)
    if any(
        (isinstance(mark, cst.Name) and mark.value == _ABSTRACT)
        or (isinstance(mark, cst.Attribute) and mark.attr.value == _ABSTRACT)
        for mark in marks
    ):
        return True
    suite = function.body
    lines = suite.body if isinstance(suite, cst.IndentedBlock) else (suite,)
    return all(
        isinstance(line, (cst.SimpleStatementLine, cst.SimpleStatementSuite))
        and all(map(_is_empty, line.body))
        for line in lines
    )


def _is_empty(line: cst.CSTNode) -> bool:
    """Return whether a statement is a docstring, `pass`, `...` or raises NotImplementedError."""
    if isinstance(line, cst.Raise):
        error = line.exc.func if isinstance(line.exc, cst.Call) else line.exc
        return isinstance(error, cst.Name) and error.value == "NotImplementedError"
    return isinstance(line, cst.Pass) or (
        isinstance(line, cst.Expr)
        and isinstance(line.value, (cst.Ellipsis, cst.SimpleString, cst.ConcatenatedString))
    )
