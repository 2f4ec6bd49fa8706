"""Overriding: which methods of several classes a call on one object may run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.calls.part import Part
from torchlint.semantic.syntax.methods import lines_of

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

    def is_replaced(self, call: cst.Call) -> bool:
        """Return whether a call stands in a method that all objects made in view override."""
        function = self.scopes.function(call)
        owner = None if function is None else self.scopes.scope(function).node
        if function is None or not isinstance(owner, cst.ClassDef):
            return False
        heirs = self._subclasses.get(owner, ())
        made = [each for each in (owner, *heirs) if self._is_made(each)] if heirs else []
        return bool(made) and not any(self._runs(function, each) for each in made)

    @cached_method
    def _is_made(self, owner: cst.ClassDef) -> bool:
        return any(True for _ in self.functions.makings(owner))

    def only(self, method: cst.FunctionDef, owner: cst.ClassDef) -> cst.FunctionDef:
        """Return the one override of an abstract method in view, or the method itself."""
        found = self.possible(method, owner)
        return found[0] if len(found) == 1 else method

    def possible(self, method: cst.FunctionDef, owner: cst.ClassDef) -> tuple[cst.FunctionDef, ...]:
        """Return the overrides in view of an abstract method, or the method itself."""
        if not is_abstract(method):
            return (method,)
        found = [
            override
            for each in self._subclasses.get(owner, ())
            if (override := self.functions.method(each, method.name.value)) is not None
            and not is_abstract(override)
        ]
        return tuple(dict.fromkeys(found)) or (method,)

    @cached_method
    def chosen(self, call: cst.Call) -> tuple[cst.FunctionDef, ...]:
        """Return the methods that a call may run of classes that only the program tells.

        A name holds an object of one of several, or a class leaves a method to its subclasses.
        """
        func = call.func
        found = [self.functions.called_object(each) for each in self._owners(func)]
        if type(func) is cst.Attribute:
            named = self._owners(func.value)
            found += [self.functions.method(each, func.attr.value) for each in named]
        return tuple(each for each in dict.fromkeys(found) if each is not None)

    def _owners(self, node: cst.BaseExpression) -> tuple[cst.ClassDef, ...]:
        """Return the classes of which an object may be one, beside the one it is known to be of."""
        one = self.functions.instance_of(node)
        if one is None:
            return self.functions.classes_of(node)
        heirs = self._subclasses.get(one, ())
        return tuple(each for each in heirs if self._may_be_of(node, each))

    def _may_be_of(self, node: cst.BaseExpression, heir: cst.ClassDef) -> bool:
        """Return whether an object of a known class comes from outside, and may be of an heir."""
        receiver: cst.BaseExpression | None = node
        if type(receiver) is cst.Attribute:
            held = self.functions.bindings(receiver)
            receiver = held[0].value if len(held) == 1 else None
        given = [each.parameter for each in self.functions.bindings(receiver)]
        return bool(given) and all(
            each is not None and self._may_run_for(each, heir) for each in given
        )

    def _may_run_for(self, parameter: cst.Param, heir: cst.ClassDef) -> bool:
        """Return whether a parameter, if it is a method's `self`, may be an object of a class."""
        if self.functions.owner_of_self(parameter) is None:
            return True
        method = self.tree.parent(self.tree.parent(parameter))
        assert isinstance(method, cst.FunctionDef)
        return self._runs(method, heir)

    @cached_method
    def _runs(self, method: cst.FunctionDef, owner: cst.ClassDef) -> bool:
        """Return whether a class has a method of its line, or calls it by `super()`."""
        word = method.name.value
        if self.functions.method(owner, word) is method:
            return True
        lineage = self.functions.lineage(owner)
        return any(
            self.scopes.class_of(mention) in lineage
            and not self.functions.is_self(mention.value)
            and self.functions.definition(mention) is method
            for mention in self.functions.attributes(word)
        )


def is_abstract(function: cst.FunctionDef) -> bool:
    """Return whether a method only says that subclasses have to define it."""
    marks = (each.decorator for each in function.decorators)
    if any(
        (isinstance(mark, cst.Name) and mark.value == _ABSTRACT)
        or (isinstance(mark, cst.Attribute) and mark.attr.value == _ABSTRACT)
        for mark in marks
    ):
        return True
    lines = lines_of(function.body)
    ends = (number for number, line in enumerate(lines, 1) if isinstance(line, cst.Raise))
    return all(map(_is_empty, lines[: next(ends, None)]))


def _is_empty(line: cst.CSTNode) -> bool:
    """Return whether a statement is a docstring, `pass`, `...` or raises NotImplementedError."""
    if isinstance(line, cst.Raise):
        error = line.exc.func if isinstance(line.exc, cst.Call) else line.exc
        return isinstance(error, cst.Name) and error.value == "NotImplementedError"
    return isinstance(line, cst.Pass) or (
        isinstance(line, cst.Expr)
        and isinstance(line.value, (cst.Ellipsis, cst.SimpleString, cst.ConcatenatedString))
    )
