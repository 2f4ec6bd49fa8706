"""Invariance: whether an expression is loop-invariant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.data.itemwork import ItemWork
from torchlint.semantic.data.randomness import RANDOM_METHODS, random_name
from torchlint.semantic.loops.loops import LoopNode
from torchlint.semantic.scope.libraries import is_data_library
from torchlint.semantic.scope.scopes import Binding, How, dotted
from torchlint.semantic.values.writes import Writes

Runs = Sequence[cst.Call]
"""The calls that lead from a loop to a function, the one in the loop itself first."""

_PURE: Final = re.compile(
    r"torch\.utils\.data\.(?!random_split)[A-Z]\w*|torchvision\.(?:datasets|transforms)\.[\w.]+|"
    r"torch\.(?:Generator|device|cuda\.is_available|cuda\.device_count)|(?:os|multiprocessing)\.cpu_count|"
    r"os\.path\.join|pathlib\.Path|builtins\.(?:len|int|str|float|bool|min|max|range|dict|set)"
)
_CHANGING: Final = frozenset(
    "append extend add update pop insert clear remove sort reverse setdefault popitem".split()
)
_DRAWING: Final = RANDOM_METHODS.union(
    "shuffle permutation choice choices sample rand randn randint integers normal uniform".split()
)


class Invariance(IntEnum):
    """Whether an expression has the same value in every pass of a loop."""

    CHANGING = 0
    """It may differ from pass to pass."""
    REMADE = 1
    """It is the same, but computed from objects that each pass creates again."""
    INVARIANT = 2
    """It is the same, and computed only from objects created before the loop."""


class Invariances(Analysis):
    """Decides whether expressions are loop-invariant."""

    def __init__(self, work: ItemWork, writes: Writes) -> None:
        super().__init__(work.functions)
        self.work = work
        self.writes = writes

    def of(self, node: cst.BaseExpression, loop: LoopNode, runs: Runs = ()) -> Invariance:
        """Return whether an expression is loop-invariant.

        `runs` are the calls through which the loop reaches the expression.
        """
        return _Passes(self, loop, runs).of(node)


class _Passes:
    """One query: an expression, a loop, and the calls between them."""

    def __init__(self, asked: Invariances, loop: LoopNode, runs: Runs) -> None:
        self.functions = asked.functions
        self.work = asked.work
        self.writes = asked.writes
        self.tree = asked.tree
        self.scopes = asked.scopes
        self.names = asked.names
        self.loop = loop
        self.run_by = {id(asked.functions.callee(call)): call for call in runs}
        bodies = (asked.functions.callee(call) for call in runs)
        self.regions: list[cst.CSTNode] = [loop, *asked.functions.reached(loop.body)]
        self.regions += [body for body in bodies if body is not None]
        self.open: set[int] = set()

    def of(self, node: cst.BaseExpression) -> Invariance:
        if id(node) in self.open:
            return Invariance.CHANGING
        self.open.add(id(node))
        try:
            return min(self._parts(node), default=Invariance.INVARIANT)
        finally:
            self.open.discard(id(node))

    def _parts(self, node: cst.BaseExpression) -> Iterator[Invariance]:
        if any(True for kind in (cst.NamedExpr, cst.Await) for _ in self.tree.within(node, kind)):
            yield Invariance.CHANGING
        for call in self.tree.within(node, cst.Call):
            yield self._made(call)
        for attribute in self.tree.within(node, cst.Attribute):
            yield self._attribute(attribute)
        for name in self.tree.within(node, cst.Name):
            yield self._name(name, node)

    # -- names ----------------------------------------------------------------

    def _name(self, name: cst.Name, node: cst.BaseExpression) -> Invariance:
        bindings = [b for b in self.scopes.reaching(name) if not self.tree.inside(b.node, node)]
        inner = [b for b in bindings if self._inside(b.node)]
        if not inner:
            return Invariance.CHANGING if name.value in self._written else Invariance.INVARIANT
        return self._bound(inner[0]) if len(bindings) == 1 else Invariance.CHANGING

    def _bound(self, binding: Binding) -> Invariance:
        if isinstance(binding.node, (cst.FunctionDef, cst.ClassDef)):
            return Invariance.REMADE
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            return self._parameter(binding.node)
        inner = binding.node if binding.node is not self.loop else None
        if binding.how is How.LOOP and type(inner) is cst.For and not binding.path:
            # a loop in each pass over the same things: `for split in ("train", "valid")`
            return min(Invariance.REMADE, self.of(inner.iter))
        if binding.how is How.ASSIGN and binding.value is not None:
            if binding.name in self._written:
                return Invariance.CHANGING
            return min(Invariance.REMADE, self.of(binding.value))
        return Invariance.INVARIANT if binding.how is How.IMPORT else Invariance.CHANGING

    def _parameter(self, parameter: cst.Param) -> Invariance:
        """Return whether an argument of a function that the passes call is invariant."""
        function = self.scopes.function(parameter)
        call = self.run_by.get(id(function))
        if self.functions.owner_of_self(parameter) is not None:
            return Invariance.INVARIANT
        if function is None or call is None:
            return Invariance.CHANGING
        given = self.functions.passed(call, function, parameter.name.value)
        if given is None:
            plain = parameter.default is not None and not any(arg.star for arg in call.args)
            return Invariance.INVARIANT if plain else Invariance.CHANGING
        return self.of(given)

    def _attribute(self, node: cst.Attribute) -> Invariance:
        """Return whether an attribute is invariant: the passes must not set it."""
        path = dotted(node)
        if not path:
            return Invariance.INVARIANT
        for line in (*self.functions.attribute(node), *self._settings(node.attr.value)):
            if self._inside(line.node):
                return Invariance.CHANGING
        return Invariance.CHANGING if path in self._written else Invariance.INVARIANT

    def _settings(self, attribute: str) -> Iterator[Binding]:
        """Yield the assignments to an attribute of any object."""
        for target in self.functions.attributes(attribute):
            bound = self.scopes.stored(target)
            if bound is not None:
                yield bound

    def _inside(self, node: cst.CSTNode) -> bool:
        return any(self.tree.inside(node, region) for region in self.regions)

    @cached_property
    def _written(self) -> frozenset[str]:
        """The paths of objects that the passes mutate."""
        found: set[str] = set()
        for region in self.regions:
            for call in self.tree.within(region, cst.Call):
                func = call.func
                if isinstance(func, cst.Attribute) and func.attr.value in _CHANGING:
                    found.add(dotted(func.value))
            found.update(dotted(each.tensor) for each in self.writes.within(region))
        return frozenset(found)

    # -- calls ----------------------------------------------------------------

    def _made(self, call: cst.Call) -> Invariance:
        name = self.names.name(call.func)
        if name is not None:
            plain = _PURE.fullmatch(name) is not None and not name.endswith(".random_split")
            return Invariance.INVARIANT if plain else Invariance.CHANGING
        owner = self.functions.definition(call.func)
        if isinstance(owner, cst.ClassDef):
            return Invariance.REMADE if self._is_plain(owner) else Invariance.CHANGING
        func = call.func
        seeded = isinstance(func, cst.Attribute) and func.attr.value == "manual_seed"
        return Invariance.INVARIANT if seeded else Invariance.CHANGING

    def _is_plain(self, owner: cst.ClassDef) -> bool:
        """Return whether creating an instance does nothing that may vary."""
        made = self.functions.method(owner, "__init__")
        if made is None:
            return bool(owner.bases)
        return all(self._is_plain_call(call) for call in self.functions.run_in(made))

    def _is_plain_call(self, call: cst.Call) -> bool:
        name = self.names.name(call.func)
        if name is not None:
            return is_data_library(name) and not random_name(name)
        known = self.functions.callee(call) is not None
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else "shuffle"
        return known or method not in _DRAWING
