"""Overriding: which methods of several classes a call on one object may run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.part import Part

_ABSTRACT: Final = "abstractmethod"


class Overriding(Part):
    """Relates the methods of a class in view to those that its subclasses in view define."""

    @cached_property
    def _subclasses(self) -> dict[cst.ClassDef, list[cst.ClassDef]]:
        """The classes that derive from each class, nearest or not, in source order."""
        found: dict[cst.ClassDef, list[cst.ClassDef]] = {}
        for owner in self.tree.all(cst.ClassDef):
            for base in self.functions.lineage(owner)[1:] if owner.bases else ():
                found.setdefault(base, []).append(owner)
        return found

    def is_base(self, owner: cst.ClassDef) -> bool:
        """Return whether a class in view derives from a class."""
        return owner in self._subclasses

    def inheriting(self, method: cst.FunctionDef, owner: cst.ClassDef) -> Iterator[cst.ClassDef]:
        """Yield the class of a method, and the subclasses in view that do not override it."""
        yield owner
        for each in self._subclasses.get(owner, ()):
            if self.functions.method(each, method.name.value) is method:
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
            if (override := self.functions.method(each, method.name.value)) is not None
            and not _is_abstract(override)
        ]
        return tuple(dict.fromkeys(found)) or (method,)

    def chosen(self, call: cst.Call) -> tuple[cst.FunctionDef, ...]:
        """Return the methods that a call may run of classes that only the program tells.

        A name holds an object of one of several, or a class leaves a method to its subclasses.
        """
        func = call.func
        if type(func) is not cst.Attribute:
            return ()
        owners = self.functions.classes_of(func.value)
        if len(owners) == 1 and type(func.value) is cst.Name:
            owners = tuple(self._subclasses.get(owners[0], ()))
        methods = [self.functions.method(each, func.attr.value) for each in owners]
        return tuple(each for each in dict.fromkeys(methods) if each is not None)

    def calls_of_base(self, function: cst.FunctionDef, owner: cst.ClassDef) -> Iterator[cst.Call]:
        """Yield the calls of an overridden method on what may be an instance of its override."""
        for base in self.functions.lineage(owner)[1:] if owner.bases else ():
            method = self.functions.method(base, function.name.value)
            if method is not None:
                yield from (
                    call for call in self.functions.callers(method) if self._may_be_of(call, base)
                )
                return

    def _may_be_of(self, call: cst.Call, base: cst.ClassDef) -> bool:
        """Return whether a call is made on a parameter (`self`, or one declared as a base)."""
        receiver = call.func.value if isinstance(call.func, cst.Attribute) else None
        if isinstance(receiver, cst.Attribute):
            held = self.functions.bindings(receiver)
            receiver = held[0].value if len(held) == 1 else None
        if not isinstance(receiver, cst.Name):
            return False
        given = all(isinstance(each.node, cst.Param) for each in self.scopes.reaching(receiver))
        return given and self.functions.instance_of(receiver) in self.functions.lineage(base)


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
