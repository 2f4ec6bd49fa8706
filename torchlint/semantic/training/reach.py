"""Reach: which code of a file its networks and training steps run, and which it compiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Definition
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Role
from torchlint.semantic.values.kind import Kind, derived

_COMPILING: Final = frozenset({"torch.compile", "torch.jit.script"})


class Reach(LoopAnalysis):
    """Follows the names of definitions from where they are used."""

    def is_compiled(self, node: cst.CSTNode) -> bool:
        """Return whether a compiler gets the function around a node."""
        return self._is_in(node, self._compiled)

    def is_trained(self, node: cst.CSTNode) -> bool:
        """Return whether a network of this file, or a step of its training, runs a node."""
        if any(self.tree.inside(node, loop.node) for loop in self.loops.all() if loop.is_batch):
            return True
        return self._is_in(node, self._trained)

    @cached_property
    def has_training(self) -> bool:
        """Whether the file defines a network or trains one."""
        return bool(self._trained)

    def _is_in(self, node: cst.CSTNode, definitions: frozenset[cst.CSTNode]) -> bool:
        return any(outer in definitions for outer in self.tree.ancestors(node))

    @cached_property
    def _networks(self) -> tuple[cst.ClassDef, ...]:
        return tuple(
            owner
            for owner in self.tree.all(cst.ClassDef)
            if derived(self.functions.bases(owner)) in (Kind.MODULE, Kind.CRITERION)
        )

    @cached_property
    def _trained(self) -> frozenset[cst.CSTNode]:
        steps = [each.node for each in self.loops.all() if each.role is Role.TRAIN_BATCH]
        return self.closure([*self._networks, *steps])

    @cached_property
    def _compiled(self) -> frozenset[cst.CSTNode]:
        return self.closure(self._compiler_gets())

    def closure(self, roots: Iterable[cst.CSTNode]) -> frozenset[cst.CSTNode]:
        """Return the roots and all definitions of this file that they mention, indirectly too."""
        found: dict[cst.CSTNode, None] = {}
        edge = list(roots)
        while edge:
            root = edge.pop()
            if root not in found:
                found[root] = None
                edge += self._mentioned(root)
        return frozenset(found)

    def _mentioned(self, root: cst.CSTNode) -> Iterator[Definition]:
        for kind in (cst.Name, cst.Attribute):
            for node in self.tree.within(root, kind):
                definition = self.functions.definition(node)
                if definition is not None:
                    yield definition

    def _compiler_gets(self) -> Iterator[cst.CSTNode]:
        """Yield what is compiled: all networks where the file does not show which one."""
        for mark in self.tree.all(cst.Decorator):
            named = mark.decorator.func if isinstance(mark.decorator, cst.Call) else mark.decorator
            owner = self.tree.parent(mark)
            if self.names.name(named) in _COMPILING and owner is not None:
                yield owner
        for call in self.tree.all(cst.Call):
            subject = self._subject(call)
            if subject is None:
                continue
            shown = self.functions.definition(subject) or self.functions.instance_of(subject)
            if shown is not None:
                yield shown
                continue
            origin = self.origins.of(subject)
            made = [self.functions.instance_of(value) for value in origin.values]
            yield from (each for each in made if each is not None)
            if not origin.complete:
                yield from self._networks

    def _subject(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return what a call compiles."""
        name, func = self.names.name(call.func), call.func
        if name in _COMPILING:
            return call.args[0].value if call.args else None
        if name is None and isinstance(func, cst.Attribute) and func.attr.value == "compile":
            return func.value if self.kinds.kind(func.value) is Kind.MODULE else None
        return None
