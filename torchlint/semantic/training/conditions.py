"""Conditions: code that runs only under a condition, after an error or in a test."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis

_GUARD: Final = "__name__"


class Conditions(Analysis):
    """Separates code that always runs from code that runs on demand."""

    def is_conditional(self, node: cst.CSTNode, *purposes: str) -> bool:
        """Return whether a condition, an error or a test decides whether a node runs.

        `purposes` are parts of the names of functions that are called on demand.
        """
        for child, outer in self.tree.outward(node):
            if isinstance(outer, (cst.ExceptHandler, cst.IfExp, cst.BooleanOperation, cst.Match)):
                return True
            if isinstance(outer, cst.If) and child is not outer.test:
                if _GUARD not in self.tree.code(outer.test):
                    return True
            if isinstance(outer, cst.FunctionDef) and self._runs_on_demand(outer, purposes):
                return True
        return False

    def _runs_on_demand(self, function: cst.FunctionDef, purposes: Collection[str]) -> bool:
        """Return whether a function is a test, or is called only conditionally or never."""
        name = function.name.value
        if name.startswith("test_"):
            return True
        callers = self.functions.callers(function)
        if not callers:
            return any(word in name.lower() for word in purposes)
        return all(self._is_behind_condition(call) for call in callers)

    def _is_behind_condition(self, call: cst.Call) -> bool:
        for child, outer in self.tree.outward(call):
            if isinstance(outer, (cst.ExceptHandler, cst.Else, cst.BooleanOperation, cst.IfExp)):
                return True
            if isinstance(outer, cst.If) and child is outer.body:
                if _GUARD not in self.tree.code(outer.test):
                    return True
            if isinstance(outer, cst.FunctionDef):
                return False
        return False
