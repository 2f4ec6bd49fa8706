"""Switches: code that a condition, an error or a test lets run now and then only."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import libcst as cst

from torchlint.semantic.functions import Functions

__all__ = ["Switches"]

_GUARD: Final = "__name__"


class Switches:
    """Tells what is left on for good from what somebody switches on when it is needed."""

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self.tree = functions.tree

    def switched(self, node: cst.CSTNode, purposes: Collection[str]) -> bool:
        """Whether a condition, an error or a test decides that a node runs at all.

        `purposes` are parts of the names of functions that are there to be called when needed.
        """
        child = node
        for outer in self.tree.ancestors(node):
            if isinstance(outer, (cst.ExceptHandler, cst.IfExp, cst.BooleanOperation, cst.Match)):
                return True
            if isinstance(outer, cst.If) and child is not outer.test:
                if _GUARD not in self.tree.code(outer.test):
                    return True
            if isinstance(outer, cst.FunctionDef) and self._called_when_needed(outer, purposes):
                return True
            child = outer
        return False

    def _called_when_needed(self, function: cst.FunctionDef, purposes: Collection[str]) -> bool:
        """Whether a function is a test, or a helper that runs behind a switch or not at all."""
        name = function.name.value
        if name.startswith("test_"):
            return True
        callers = self.functions.callers(function)
        if not callers:
            return any(word in name.lower() for word in purposes)
        return all(self._behind_switch(call) for call in callers)

    def _behind_switch(self, call: cst.Call) -> bool:
        child: cst.CSTNode = call
        for outer in self.tree.ancestors(call):
            if isinstance(outer, (cst.ExceptHandler, cst.Else, cst.BooleanOperation, cst.IfExp)):
                return True
            if isinstance(outer, cst.If) and child is outer.body:
                if _GUARD not in self.tree.code(outer.test):
                    return True
            if isinstance(outer, cst.FunctionDef):
                return False
            child = outer
        return False
