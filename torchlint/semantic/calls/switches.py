"""Switches: branches that a constant of a module or a class rules out as the project stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.calls.part import Part
from torchlint.semantic.scope.scopes import Binding
from torchlint.semantic.syntax.methods import root_of

_SETTINGS: Final = {"True": True, "False": False}


class Switches(Part):
    """Reads the constants that switch code on: `if config.USE_TPU:` after `USE_TPU = False`.

    People change such a constant, so what a branch holds is worth a finding all the same. But it
    says nothing about the code around the branch.
    """

    def is_off(self, node: cst.CSTNode, beside: cst.CSTNode) -> bool:
        """Return whether a constant rules out a node, and not what stands beside it as well."""
        tests = set(self._ruling_out(node))
        return bool(tests) and not tests <= set(self._ruling_out(beside))

    def _ruling_out(self, node: cst.CSTNode) -> Iterator[str]:
        """Yield the tests of constants that keep a node from running."""
        for child, outer in self.tree.outward(node):
            if isinstance(outer, (cst.If, cst.IfExp)) and child is not outer.test:
                setting = self._setting(outer.test)
                if setting is not None and setting is not (child is outer.body):
                    yield self.tree.code(outer.test)

    def _setting(self, test: cst.BaseExpression) -> bool | None:
        """Return how a test of constants comes out, None if something else decides."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            setting = self._setting(test.expression)
            return None if setting is None else not setting
        if isinstance(test, cst.BooleanOperation):
            decides = isinstance(test.operator, cst.Or)
            sides = {self._setting(test.left), self._setting(test.right)}
            return decides if decides in sides else None if None in sides else not decides
        bindings = self.functions.bindings(test)
        if len(bindings) != 1 or self.functions.is_self(root_of(test)):
            return None
        return self._constant(bindings[0])

    def _constant(self, binding: Binding) -> bool | None:
        """Return what a module or a class assigns once, None for what is no such constant.

        The fields of a dataclass, which have annotations, are what a caller or a command line says.
        """
        line, value = binding.node, binding.value
        if not isinstance(line, cst.Assign) or self.scopes.function(line) is not None:
            return None
        if any(not self.scopes.reads(each) for each in self.functions.attributes(binding.name)):
            return None
        return _SETTINGS.get(value.value) if isinstance(value, cst.Name) else None
