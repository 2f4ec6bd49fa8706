"""Repetition: which code runs in every step of training or inference."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.finding import Note
from torchlint.semantic.calls.applied import STEPS, is_applied
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.generation import Generation
from torchlint.semantic.loops.loops import LoopNode, Loops, Role
from torchlint.semantic.scope.limits import CALLERS
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.words import words
from torchlint.semantic.values.kind import Kind, derived

_STEPS: Final = re.compile(
    r"forward\w*|(?:training|validation|test)_step|init_?hidden|initHidden|zero_state"
)
_UPDATES: Final = frozenset("update updates learn optimize optimise replay step".split())
_ANSWERS: Final = frozenset(
    "act action actions sample generate predict infer decode encode translate beam greedy "
    "backward interpolate reconstruct".split()
)
_LOSSES: Final = frozenset("loss losses penalty criterion".split())
_ONCE: Final = frozenset(
    "init initialize build make create load save export setup main test demo plot show draw "
    "visualize visualise summary profile benchmark warmup check trace run train fit evaluate "
    "get parse register all samples epoch grid image images video".split()
)
"""Words in names of functions that a program calls rarely, whatever else the name says."""
_TRAINS: Final = frozenset("train training run fit".split())
_PASSES: Final = frozenset("step batch iter iteration minibatch".split())
"""Words that make the function of one step of these: `train_step`, `run_batch`."""
_NOISE: Final = ("torch.randn", "torch.rand")
_REPEATED: Final = "the loop that runs this in every step"


class Repetition(LoopAnalysis):
    """Separates code that runs in every step from setup code, in loops and in networks."""

    def __init__(self, loops: Loops, frequencies: Frequencies, generation: Generation) -> None:
        super().__init__(loops)
        self.frequencies = frequencies
        self.generation = generation

    def each_step(self, node: cst.CSTNode) -> bool:
        """Return whether a node runs in every step: of a batch loop, a rollout, or a network."""
        frequency = self.frequencies.frequency(node)
        if frequency is not Frequency.UNKNOWN:
            return frequency is Frequency.EVERY_PASS and not self._is_repair(node)
        if self._is_repair(node):
            return False
        if any(
            loop.role is Role.OTHER
            and self.loops.runs_module_itself(loop.node.body)
            and not self.generation.only_samples(loop.node)
            for loop in self.loops.around(node)
        ):
            return True
        function = self.scopes.function(node)
        if function is None or not self._is_step(function):
            return False
        return self.frequencies.below(node, function) is Frequency.EVERY_PASS

    def notes_on_callers(self, node: cst.CSTNode) -> tuple[Note, ...]:
        """Return a note about the loop of another module that runs a node in every step.

        There is none if a loop of the node's own module runs it.
        """
        loop = self._loop_elsewhere(node, CALLERS)
        return () if loop is None else self.notes_on(loop)

    def notes_on(self, loop: LoopNode) -> tuple[Note, ...]:
        """Return a note about a loop that runs a finding in every step if it is elsewhere."""
        tree = self.functions.tree
        return () if tree.is_own(loop) else (Note(tree.span(loop), _REPEATED),)

    def _loop_elsewhere(self, node: cst.CSTNode, most: int) -> LoopNode | None:
        around = next(self.loops.around(node), None)
        if around is not None:
            return None if self.functions.tree.is_own(node) else around.node
        function = self.scopes.function(node)
        if function is None or not most:
            return None
        for call in self.functions.callers(function):
            if self.each_step(call):
                return self._loop_elsewhere(call, most - 1)
        return None

    def _is_repair(self, node: cst.CSTNode) -> bool:
        """Return whether a node runs only after a NaN."""
        return any(map(self.frequencies.tests_for_non_finite, self.tree.tests_around(node)))

    @memoized(False)
    def _is_step(self, function: cst.FunctionDef) -> bool:
        if self.generation.samples(function):
            return False
        owner, name = self.scopes.scope(function).node, function.name.value
        if isinstance(owner, cst.ClassDef):
            if name in STEPS and is_applied(self.functions, owner):
                return True
            is_network = derived(self.functions.bases(owner)) in (Kind.MODULE, Kind.CRITERION)
            if is_network and _STEPS.fullmatch(name):
                return True
        callers = self.functions.callers(function)
        if not callers:
            return self._is_named_for_step(function)
        return any(self.each_step(call) for call in callers)

    def _is_named_for_step(self, function: cst.FunctionDef) -> bool:
        """Return whether an uncalled function runs in each step, by its name or its loss."""
        name_words = frozenset(words(function.name.value))
        trains_once = bool(name_words & _TRAINS and name_words & _PASSES)
        if trains_once:
            name_words = frozenset({"step"})
        if name_words & _ONCE or self._draws_batches(function):
            return False
        if name_words & _LOSSES or self.frequencies.step_functions.losses(function):
            return True
        if name_words & _UPDATES:
            steps = any(map(self.loops.is_step, self.functions.own(function.body, cst.Call)))
            return steps or (trains_once and self.loops.runs_module(function.body))
        answers = name_words & _ANSWERS and self.loops.runs_module(function.body)
        return bool(answers) and not self._draws_as_told(function)

    def _draws_as_told(self, function: cst.FunctionDef) -> bool:
        """Return whether a function draws as many rows of noise as its caller says, to show it."""
        calls = self.functions.own(function.body, cst.Call)
        noise = [each for each in calls if each.args and self.names.name(each.func) in _NOISE]
        return any(self.scopes.only(each.args[0].value).parameter is not None for each in noise)

    def _draws_batches(self, function: cst.FunctionDef) -> bool:
        """Return whether one call of a function iterates over many batches."""
        return any(
            loop.loader is not None or loop.role in (Role.EPOCH, Role.EVAL_BATCH)
            for loop in self.loops.own(function)
        )
