"""Repetition: which code runs again and again while a network trains or answers."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.regex import regex
from torchlint.semantic.functions import Functions
from torchlint.semantic.heat import Heat, Heats
from torchlint.semantic.kind import Kind, derived
from torchlint.semantic.loops import LoopNode, Loops, Role
from torchlint.semantic.memo import Memo
from torchlint.semantic.words import words

__all__ = ["Repetition"]

_STEPS: Final = regex(
    r"forward\w*|(?:training|validation|test)_step|init_?hidden|initHidden|zero_state"
)
_UPDATES: Final = frozenset("update updates learn optimize optimise replay step".split())
_ANSWERS: Final = frozenset(
    (
        "act action actions sample generate predict infer decode encode translate beam greedy "
        "backward interpolate reconstruct"
    ).split()
)
_LOSSES: Final = frozenset("loss losses penalty criterion".split())
_ONCE: Final = frozenset(
    (
        "init initialize build make create load save export setup main test demo plot show draw "
        "visualize visualise summary profile benchmark warmup check trace run train fit evaluate "
        "get parse register all samples epoch grid image images video"
    ).split()
)
"""Words of functions that a program calls now and then, whatever else their names say."""


class Repetition:
    """Tells code of every step from code that sets things up, in loops and in networks alike."""

    def __init__(self, functions: Functions, heats: Heats, loops: Loops) -> None:
        self.functions = functions
        self.heats = heats
        self.loops = loops
        self.scopes = functions.scopes
        self._functions = Memo(False, functions.names.trail, self._is_step)

    def each_step(self, node: cst.CSTNode) -> bool:
        """Whether a node runs in every step: of a batch loop, of a rollout, of a network."""
        heat = self.heats.heat(node)
        if heat is not Heat.UNKNOWN:
            return heat is Heat.HOT and not self._mends(node)
        if self._mends(node):
            return False
        if any(
            loop.role is Role.OTHER and self.loops.runs_module_itself(loop.node.body)
            for loop in self.loops.around(node)
        ):
            return True
        function = self.scopes.function(node)
        return function is not None and self._functions.answer(function)

    def _mends(self, node: cst.CSTNode) -> bool:
        """Whether a node runs only while an attribute is None, or once numbers broke down."""
        child = node
        for outer in self.functions.tree.ancestors(node):
            if isinstance(outer, cst.FunctionDef):
                return False
            if isinstance(outer, cst.If) and child is outer.body:
                if _asks_for_none(outer.test) or self.heats.breaks_down(outer.test):
                    return True
            child = outer
        return False

    def _is_step(self, function: cst.FunctionDef) -> bool:
        owner = self.scopes.scope(function).node
        if isinstance(owner, cst.ClassDef) and _STEPS.fullmatch(function.name.value):
            if derived(self.functions.bases(owner)) in (Kind.MODULE, Kind.CRITERION):
                return True
        callers = self.functions.callers(function)
        if not callers:
            return self._is_named_for_step(function)
        return any(self.each_step(call) for call in callers)

    def _is_named_for_step(self, function: cst.FunctionDef) -> bool:
        """Whether a function that no code of this file runs is one for each step by its name."""
        spoken = frozenset(words(function.name.value))
        if spoken & _ONCE or self._draws_batches(function):
            return False
        if spoken & _LOSSES:
            return True
        if spoken & _UPDATES:
            return any(map(self.loops.is_step, self.functions.own(function.body, cst.Call)))
        return bool(spoken & _ANSWERS) and self.loops.runs_module(function.body)

    def _draws_batches(self, function: cst.FunctionDef) -> bool:
        """Whether one run of a function goes through many batches."""
        loops: list[LoopNode] = [
            *self.functions.own(function.body, cst.For),
            *self.functions.own(function.body, cst.While),
        ]
        return any(
            loop.loader is not None or loop.role in (Role.EPOCH, Role.EVAL_BATCH)
            for loop in map(self.loops.loop, loops)
        )


def _asks_for_none(test: cst.BaseExpression) -> bool:
    """Whether a test is `self.x is None` or `not hasattr(self, "x")`."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        call = test.expression
        return (
            isinstance(call, cst.Call)
            and isinstance(call.func, cst.Name)
            and call.func.value == "hasattr"
        )
    return (
        isinstance(test, cst.Comparison)
        and isinstance(test.left, cst.Attribute)
        and isinstance(test.comparisons[0].operator, cst.Is)
    )
