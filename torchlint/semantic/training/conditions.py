"""Conditions: code that runs only under a condition, after an error or in a test."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.syntax.methods import last_word

_GUARD: Final = "__name__"


class Conditions(LoopAnalysis):
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
        tests = purposes if self._trains(function) else ("",)
        return all(self._is_behind_condition(call, tests) for call in callers)

    def _trains(self, function: cst.FunctionDef) -> bool:
        """Return whether a function trains: a condition for that is no switch of a part of it."""
        return any(self.loops.trains(each.node, direct=False) for each in self.loops.own(function))

    def _is_behind_condition(self, call: cst.Call, words: Collection[str]) -> bool:
        """Return whether a call depends on an error, or on a condition with one of some words."""
        for child, outer in self.tree.outward(call):
            if isinstance(outer, cst.ExceptHandler):
                return True
            if isinstance(outer, (cst.If, cst.Else, cst.BooleanOperation, cst.IfExp)):
                asked = self._asked(outer, child)
                if asked and _GUARD not in asked and any(word in asked for word in words):
                    return True
            if isinstance(outer, cst.FunctionDef):
                return False
        return False

    def _asked(self, choice: cst.CSTNode, part: cst.CSTNode) -> str:
        """Return the code that decides whether a part of a choice runs, "" if it always does."""
        if isinstance(choice, cst.Else):
            choice = self.tree.parent(choice) or choice
        if isinstance(choice, cst.If):
            return self.tree.code(choice.test).lower() if part is not choice.test else ""
        return self.tree.code(choice).lower()

    def is_for_callback(self, use: cst.CSTNode, region: cst.CSTNode) -> bool:
        """Return whether a use is behind `if f is not None:`, given to an `f` that may be left out.

        Without `f` no pass needs the value, and with it the read can stand there.
        """
        called = {
            call.func.value
            for call in self.tree.ancestors(use)
            if isinstance(call, cst.Call) and isinstance(call.func, cst.Name)
        }
        for child, outer in self.tree.outward(use):
            if outer is region:
                return False
            if isinstance(outer, cst.If) and child is outer.body:
                asked = _asked_for(outer.test)
                if asked is not None and asked.value in called and self._may_be_left_out(asked):
                    return True
        return False

    def _may_be_left_out(self, name: cst.Name) -> bool:
        """Return whether a name is a parameter with the default None."""
        parameters = [each.parameter for each in self.scopes.reaching(name)]
        return all(each is not None and last_word(each.default) == "None" for each in parameters)


def _asked_for(test: cst.BaseExpression) -> cst.Name | None:
    """Return the name that a test asks for being set: `f is not None`, or `f`."""
    if isinstance(test, cst.Comparison) and isinstance(test.comparisons[0].operator, cst.IsNot):
        test = test.left
    return test if isinstance(test, cst.Name) else None
