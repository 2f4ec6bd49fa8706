"""Ownership: which framework runs a loop or a method, what it does there, and how often."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

import libcst as cst

from torchlint.semantic.calls.hooks import Rate
from torchlint.semantic.loops.engines import Engines
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.syntax.methods import last_word
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

HAND_WRITTEN: Final = "none"
"""The owner of a loop that a script writes itself."""


class Duty(Enum):
    """What a loop has to do, and what some frameworks do for it."""

    PLACING = auto()
    PRECISION = auto()
    CLEARING = auto()
    DIVIDING = auto()
    MODES = auto()
    SHARDING = auto()


_ALL: Final = frozenset("transformers lightning fastai".split())
_LOOPS: Final = _ALL | {"ignite", "openmmlab", "speechbrain", "catalyst"}
_DONE: Final = {
    Duty.PLACING: _ALL | {"fabric", "accelerate"},
    Duty.PRECISION: _LOOPS | {"fabric", "accelerate", "deepspeed"},
    Duty.CLEARING: _LOOPS | {"deepspeed"},
    Duty.DIVIDING: _LOOPS | {"accelerate", "deepspeed"},
    Duty.MODES: _LOOPS,
    Duty.SHARDING: _LOOPS | {"fabric", "accelerate", "deepspeed"},
}
"""The frameworks that do each duty themselves, or may do it."""
BY_HAND: Final = (Duty.CLEARING, Duty.DIVIDING)
"""What a module of Lightning does that optimizes by hand."""
_OBJECTS: Final = (
    (re.compile(r"accelerate\.(?:accelerator\.)?Accelerator"), "accelerate"),
    (re.compile(r"(?:lightning(?:\.fabric(?:\.fabric)?)?|lightning_fabric(?:\.fabric)?)\.Fabric"),
     "fabric"),
    (re.compile(r"deepspeed\.initialize"), "deepspeed"),
)  # fmt: skip
"""The objects whose `backward` a loop calls."""
_WORDS: Final = {
    "accelerator": "accelerate",
    "fabric": "fabric",
    "engine": "deepspeed",
    "model": "deepspeed",
    "model_engine": "deepspeed",
}
"""What objects are called that come from code out of view."""


class Ownership(ValueAnalysis):
    """Tells who runs a loop by what the loop uses, and how often methods are called."""

    def __init__(self, values: KnownValues) -> None:
        super().__init__(values)
        self.engines = Engines(values)

    def rate(self, function: cst.FunctionDef) -> Rate | None:
        """Return how often a framework calls a function, None if none is known to call it."""
        run = self.engines.rate(function)
        if run is not None:
            return run
        return self.values.hooks.rate(function)

    @staticmethod
    def does(owner: str, duty: Duty) -> bool:
        """Return whether an owner of a loop does a duty, so that the script must not."""
        return owner in _DONE[duty]

    def steps_by_hand(self, node: cst.CSTNode) -> bool:
        """Return whether a node is in a module of Lightning that optimizes by hand."""
        owner = self.scopes.class_of(node)
        return owner is not None and self.values.hooks.steps_by_hand(owner)

    def owner(self, node: cst.CSTNode) -> str | None:
        """Return what runs the loop or method around a node, None if nothing around tells.

        It is a framework or `none`, where a script writes its loop itself.
        """
        function = self.scopes.function(node)
        if function is not None:
            framework = self.values.hooks.framework(function)
            if framework is not None:
                return framework
            if self.engines.is_process(function):
                return "ignite"
        for outer in self.tree.ancestors(node):
            if isinstance(outer, (cst.For, cst.While, cst.FunctionDef)):
                found = self._by_use(outer)
                if found is not None:
                    return found
            if isinstance(outer, cst.FunctionDef):
                return None
        return None

    @memoized(None)
    def _by_use(self, outer: cst.CSTNode) -> str | None:
        """Return whose `backward` a loop or function calls, None if it calls none."""
        body = outer.body if isinstance(outer, (cst.For, cst.While, cst.FunctionDef)) else outer
        if not self.functions.attributes("backward"):
            return None
        found = None
        for call in self.functions.run_in(body):
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == "backward":
                is_own = self.functions.callee(call) is not None
                owner = None if is_own else self._object(func.value, bool(call.args))
                if owner is not None:
                    return owner
                found = HAND_WRITTEN
        return found

    def _object(self, node: cst.BaseExpression, given: bool) -> str | None:
        """Return the framework that an object is of, which `backward` is called on."""
        value = self.values.value_of(node).node
        if isinstance(value, cst.Call):
            name = self.names.name(value.func) or ""
            for pattern, framework in _OBJECTS:
                if pattern.fullmatch(name):
                    return framework
        if isinstance(node, cst.Name):
            made = (binding.value for binding in self.scopes.reaching(node))
            calls = [self.names.name(each.func) for each in made if isinstance(each, cst.Call)]
            for pattern, framework in _OBJECTS:
                if any(pattern.fullmatch(name or "") for name in calls):
                    return framework
        return _WORDS.get(last_word(node)) if given else None
