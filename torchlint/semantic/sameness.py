"""Sameness: whether what an expression makes is the same in every pass of a loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.regex import regex
from torchlint.semantic.functions import Functions
from torchlint.semantic.itemwork import ItemWork
from torchlint.semantic.loops import LoopNode
from torchlint.semantic.randomness import RANDOM_METHODS, random_name
from torchlint.semantic.scopes import Binding, How, dotted

__all__ = ["Runs", "Sameness", "Samenesses"]

Runs = Sequence[cst.Call]
"""The calls that lead from a loop to a function, the one in the loop's own passes first."""

_PURE: Final = regex(
    r"torch\.utils\.data\.(?!random_split)[A-Z]\w*|torchvision\.(?:datasets|transforms)\.[\w.]+|"
    r"torch\.(?:Generator|device|cuda\.is_available|cuda\.device_count)|os\.cpu_count|"
    r"os\.path\.join|pathlib\.Path|builtins\.(?:len|int|str|float|bool|min|max|range|dict|set)"
)
_CHANGING: Final = frozenset(
    "append extend add update pop insert clear remove sort reverse setdefault popitem".split()
)
_DRAWING: Final = RANDOM_METHODS.union(
    "shuffle permutation choice choices sample rand randn randint integers normal uniform".split()
)


class Sameness(IntEnum):
    """How an expression comes out in the passes of a loop."""

    CHANGING = 0
    """Differently, as far as the file shows."""
    REMADE = 1
    """The same, but out of things that each pass makes anew."""
    SAME = 2
    """The same, and out of nothing but what was there before the loop."""


class Samenesses:
    """Follows the names of an expression out of a loop."""

    def __init__(self, functions: Functions, work: ItemWork) -> None:
        self.functions = functions
        self.work = work
        self.tree = functions.tree
        self.scopes = functions.scopes
        self.names = functions.names

    def of(self, node: cst.BaseExpression, loop: LoopNode, runs: Runs = ()) -> Sameness:
        """Say whether an expression is the same in every pass of a loop.

        `runs` are the calls through which the passes of the loop come to the expression.
        """
        return _Passes(self, loop, runs).of(node)


class _Passes:
    """One question: an expression, a loop, and the calls between them."""

    def __init__(self, asked: Samenesses, loop: LoopNode, runs: Runs) -> None:
        self.functions = asked.functions
        self.work = asked.work
        self.tree = asked.tree
        self.scopes = asked.scopes
        self.names = asked.names
        self.loop = loop
        self.run_by = {id(asked.functions.callee(call)): call for call in runs}
        bodies = (asked.functions.callee(call) for call in runs)
        self.regions: list[cst.CSTNode] = [loop, *asked.functions.reached(loop.body)]
        self.regions += [body for body in bodies if body is not None]
        self.open: set[int] = set()

    def of(self, node: cst.BaseExpression) -> Sameness:
        if id(node) in self.open:
            return Sameness.CHANGING
        self.open.add(id(node))
        try:
            return min(self._parts(node), default=Sameness.SAME)
        finally:
            self.open.discard(id(node))

    def _parts(self, node: cst.BaseExpression) -> Iterator[Sameness]:
        if any(True for kind in (cst.NamedExpr, cst.Await) for _ in self.tree.within(node, kind)):
            yield Sameness.CHANGING
        for call in self.tree.within(node, cst.Call):
            yield self._made(call)
        for attribute in self.tree.within(node, cst.Attribute):
            yield self._attribute(attribute)
        for name in self.tree.within(node, cst.Name):
            yield self._name(name, node)

    # -- names ----------------------------------------------------------------

    def _name(self, name: cst.Name, node: cst.BaseExpression) -> Sameness:
        bindings = [b for b in self.scopes.reaching(name) if not self.tree.inside(b.node, node)]
        inner = [b for b in bindings if self._inside(b.node)]
        if not inner:
            return Sameness.CHANGING if name.value in self._written else Sameness.SAME
        return self._bound(inner[0]) if len(bindings) == 1 else Sameness.CHANGING

    def _bound(self, binding: Binding) -> Sameness:
        if isinstance(binding.node, (cst.FunctionDef, cst.ClassDef)):
            return Sameness.REMADE
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            return self._parameter(binding.node)
        if binding.how is How.ASSIGN and binding.value is not None:
            if binding.name in self._written:
                return Sameness.CHANGING
            return min(Sameness.REMADE, self.of(binding.value))
        return Sameness.SAME if binding.how is How.IMPORT else Sameness.CHANGING

    def _parameter(self, parameter: cst.Param) -> Sameness:
        """Judge what the passes hand to a function that they run."""
        function = self.scopes.function(parameter)
        call = self.run_by.get(id(function))
        if self.functions.owner_of_self(parameter) is not None:
            return Sameness.SAME
        if function is None or call is None:
            return Sameness.CHANGING
        given = self.functions.passed(call, function, parameter.name.value)
        if given is None:
            plain = parameter.default is not None and not any(arg.star for arg in call.args)
            return Sameness.SAME if plain else Sameness.CHANGING
        return self.of(given)

    def _attribute(self, node: cst.Attribute) -> Sameness:
        """Judge an attribute: it must be set nowhere that the passes reach."""
        path = dotted(node)
        if not path:
            return Sameness.SAME
        for line in (*self.functions.attribute(node), *self._settings(node.attr.value)):
            if self._inside(line.node):
                return Sameness.CHANGING
        return Sameness.CHANGING if path in self._written else Sameness.SAME

    def _settings(self, attribute: str) -> Iterator[Binding]:
        """Yield the assignments to an attribute of whatever object."""
        for target in self.functions.attributes(attribute):
            bound = self.scopes.stored(target)
            if bound is not None:
                yield bound

    def _inside(self, node: cst.CSTNode) -> bool:
        return any(self.tree.inside(node, region) for region in self.regions)

    @cached_property
    def _written(self) -> frozenset[str]:
        """The paths of what the passes change in place."""
        found: set[str] = set()
        for region in self.regions:
            for call in self.tree.within(region, cst.Call):
                func = call.func
                if isinstance(func, cst.Attribute):
                    if func.attr.value in _CHANGING or func.attr.value.endswith("_"):
                        found.add(dotted(func.value))
            lines: list[cst.AssignTarget | cst.AugAssign] = [
                *self.tree.within(region, cst.AssignTarget),
                *self.tree.within(region, cst.AugAssign),
            ]
            targets = [line.target for line in lines]
            found.update(dotted(each.value) for each in targets if isinstance(each, cst.Subscript))
        return frozenset(found)

    # -- calls ----------------------------------------------------------------

    def _made(self, call: cst.Call) -> Sameness:
        name = self.names.name(call.func)
        if name is not None:
            plain = _PURE.fullmatch(name) is not None and not name.endswith(".random_split")
            return Sameness.SAME if plain else Sameness.CHANGING
        owner = self.functions.definition(call.func)
        if isinstance(owner, cst.ClassDef):
            return Sameness.REMADE if self._is_plain(owner) else Sameness.CHANGING
        func = call.func
        seeded = isinstance(func, cst.Attribute) and func.attr.value == "manual_seed"
        return Sameness.SAME if seeded else Sameness.CHANGING

    def _is_plain(self, owner: cst.ClassDef) -> bool:
        """Whether making an instance does nothing that may come out differently."""
        made = self.functions.method(owner, "__init__")
        if made is None:
            return bool(owner.bases)
        return all(
            self._is_plain_call(call)
            for body in self.functions.reached(made)
            for call in self.functions.own(body, cst.Call)
        )

    def _is_plain_call(self, call: cst.Call) -> bool:
        name = self.names.name(call.func)
        if name is not None:
            return self.work.is_public(name) and not random_name(name)
        known = self.functions.callee(call) is not None
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else "shuffle"
        return known or method not in _DRAWING
