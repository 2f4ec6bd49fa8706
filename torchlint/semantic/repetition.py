"""Repetition: which code runs again and again while a network trains or answers."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.semantic.functions import Functions
from torchlint.semantic.heat import Heat, Heats
from torchlint.semantic.kind import Kind, derived
from torchlint.semantic.loops import Loops, Role
from torchlint.semantic.memo import Memo

__all__ = ["Repetition"]

_STEPS: Final = re.compile(
    r"forward\w*|(?:training|validation|test)_step|init_?hidden|initHidden|zero_state"
)


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
            return heat is Heat.HOT
        if any(
            loop.role is Role.OTHER and self.loops.runs_module(loop.node.body)
            for loop in self.loops.around(node)
        ):
            return True
        function = self.scopes.function(node)
        return function is not None and self._functions.answer(function)

    def _is_step(self, function: cst.FunctionDef) -> bool:
        owner = self.scopes.scope(function).node
        if isinstance(owner, cst.ClassDef) and _STEPS.fullmatch(function.name.value):
            if derived(self.functions.bases(owner)) in (Kind.MODULE, Kind.CRITERION):
                return True
        return any(self.each_step(call) for call in self.functions.callers(function))
