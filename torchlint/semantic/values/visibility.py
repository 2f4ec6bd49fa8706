"""Visibility: whether this file, or a well-known library, shows what code runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.scope.libraries import (
    CONTAINER_AND_TENSOR_METHODS,
    LOGGING_METHODS,
    NETWORK_METHODS,
    RUNNING,
    is_library,
)
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import ValueAnalysis

_SHOWN_KINDS: Final = frozenset({
    Kind.TENSOR, Kind.LOSS, Kind.NDARRAY, Kind.NUMBER, Kind.STRING, Kind.SEQUENCE, Kind.MAPPING,
    Kind.LOADER, Kind.OPTIMIZER, Kind.SCHEDULER, Kind.SCALER, Kind.DEVICE, Kind.SAMPLER,
})  # fmt: skip
_MARKS: Final = ("builtins.", "torch.", "functools.", "abc.", "typing.", "contextlib.")


class Visibility(ValueAnalysis):
    """Finds the calls that run code outside this file and the known libraries."""

    def unseen_call(self, region: cst.CSTNode) -> cst.Call | None:
        """Return the first call of a region that runs unseen code, directly or indirectly."""
        return next(self.unseen_calls(region), None)

    def unseen_calls(self, region: cst.CSTNode) -> Iterator[cst.Call]:
        """Yield the calls of a region that run unseen code, directly or indirectly."""
        for call in self.functions.own(region, cst.Call):
            if not self._is_shown(call, set()):
                yield call

    def receiver(self, region: cst.CSTNode, *paths: str) -> cst.Call | None:
        """Return the first call of a region that passes one of some objects to unseen code."""
        for call in self.unseen_calls(region):
            func = call.func
            handed = [arg.value for arg in call.args]
            handed += [func.value] if isinstance(func, cst.Attribute) else []
            if any(dotted(each) in paths for each in handed if dotted(each)):
                return call
        return None

    def is_of_library(self, node: cst.CSTNode) -> bool:
        """Return whether an expression names something of a known library."""
        name = self.names.name(node)
        return name is not None and is_library(name)

    def is_of_own_class(self, node: cst.BaseExpression) -> bool:
        """Return whether classes of the project that are not in view make an object."""
        made = self.origins.of(node).values
        return bool(made) and all(
            isinstance(each, cst.Call) and self._names_own_class(each.func) for each in made
        )

    def _names_own_class(self, func: cst.BaseExpression) -> bool:
        """Return whether an expression names such a class, or a method of one."""
        name = self.names.name(func) or ""
        return name.startswith(".") and any(part[:1].isupper() for part in name.split(".")[-2:])

    def shows(self, runnable: cst.BaseExpression) -> bool:
        """Return whether all code is visible that calling a function or a network runs."""
        return self._runs_shown(runnable, set())

    def _unseen(self, region: cst.CSTNode, seen: set[int]) -> cst.Call | None:
        for call in self.functions.own(region, cst.Call):
            if not self._is_shown(call, seen):
                return call
        return None

    def _is_shown(self, call: cst.Call, seen: set[int]) -> bool:
        func = call.func
        if isinstance(func, cst.Attribute) and self.names.name(func) is None:
            method = func.attr.value
            kind = self.kinds.kind(func.value)
            if kind in _SHOWN_KINDS or method in LOGGING_METHODS:
                return True
            if kind is Kind.MODULE and method in NETWORK_METHODS:
                return True
            if kind not in (Kind.MODULE, Kind.CRITERION) and method in CONTAINER_AND_TENSOR_METHODS:
                return True
            if method == "forward" and self.functions.callee(call) is None:
                return self._runs_shown(func.value, seen)
        return self._runs_shown(func, seen)

    def _runs_shown(self, func: cst.BaseExpression, seen: set[int]) -> bool:
        """Return whether all code is visible that calling an expression runs."""
        if id(func) in seen:
            return True
        seen.add(id(func))
        name = self.names.name(func)
        if name is not None and is_library(name):
            holder = self.tree.parent(func)
            if name not in RUNNING or not isinstance(holder, cst.Call) or not holder.args:
                return True
            return self._runs_shown(holder.args[0].value, seen)
        found = self.functions.definition(func)
        if isinstance(found, cst.FunctionDef):
            return self._is_shown_function(found, seen)
        if isinstance(found, cst.ClassDef):
            return self._is_shown_class(found, seen)
        if isinstance(func, cst.Lambda):
            return self._unseen(func, seen) is None
        if isinstance(func, cst.Call):
            return self._makes_shown(func, seen)
        if isinstance(func, cst.Attribute) and not self.functions.attribute(func):
            if self._holds_shown(func.value, seen):
                return True
        return self._holds_shown(func, seen)

    def _is_shown_function(self, function: cst.FunctionDef, seen: set[int]) -> bool:
        if id(function) in seen:
            return True
        seen.add(id(function))
        if not all(mark.startswith(_MARKS) for mark in self.names.marks(function)):
            return False
        return self._unseen(function.body, seen) is None

    def _is_shown_class(self, owner: cst.ClassDef, seen: set[int]) -> bool:
        """Return whether the bases of a class are known and its methods run visible code."""
        if id(owner) in seen:
            return True
        seen.add(id(owner))
        return self._has_known_bases(owner) and all(
            self._is_shown_function(method, seen)
            for line in self.functions.lineage(owner)
            for method in self.tree.within(line, cst.FunctionDef)
        )

    def _holds_shown(self, node: cst.BaseExpression, seen: set[int]) -> bool:
        """Return whether every value of an expression was created by visible code."""
        if -id(node) in seen:
            return True
        seen.add(-id(node))
        if isinstance(node, cst.Name) and any(
            binding.how is How.IMPORT for binding in self.scopes.reaching(node)
        ):
            return is_library(self.names.name(node) or "")
        if dotted(node) == "self":
            owner = self.scopes.class_of(node)
            return owner is not None and self._has_known_bases(owner)
        container = self._container(node)
        if container is not None:
            return self._holds_shown(container, seen)
        origin = self.origins.of(node)
        return (
            origin.complete
            and bool(origin.values)
            and all(
                not isinstance(each, (cst.Name, cst.Attribute)) and self._makes_shown(each, seen)
                for each in origin.values
            )
        )

    def _container(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the container of a member (`self.blocks[i]`, `for block in self.blocks:`)."""
        if isinstance(node, cst.Subscript):
            return node.value
        binding = self.scopes.only(node)
        value = binding.value
        if value is None or binding.how is not How.LOOP:
            return None
        return self.iteration.source(value, binding.path)[0]

    def _has_known_bases(self, owner: cst.ClassDef) -> bool:
        names = (self.names.name(base) or "" for base in self.functions.outer_bases(owner))
        return all(map(is_library, names))

    def _makes_shown(self, value: cst.BaseExpression, seen: set[int]) -> bool:
        """Return whether a created object (`nn.Sequential(Block(), …)`) runs visible code."""
        if isinstance(value, cst.Lambda):
            return self._unseen(value, seen) is None
        for call in self.tree.within(value, cst.Call):
            if not self._is_shown(call, seen):
                return False
        for arg in self.tree.within(value, cst.Arg):
            given, maker = arg.value, self.tree.parent(arg)
            if isinstance(maker, cst.Call) and self.kinds.kind(maker) is Kind.CRITERION:
                continue  # A loss of torch stores weights, and calls none of its arguments.
            if isinstance(given, (cst.Name, cst.Attribute)) and self._may_run(given):
                if not self._runs_shown(given, seen):
                    return False
        return True

    def _may_run(self, node: cst.BaseExpression) -> bool:
        """Return whether an argument of a factory may be something that the result calls later."""
        if self.kinds.kind(node) in (Kind.MODULE, Kind.CRITERION):
            return True
        name = self.names.name(node)
        # a name in capital letters is a constant
        return name is not None and not is_library(name) and not name.rpartition(".")[2].isupper()
