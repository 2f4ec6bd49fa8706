"""Flagged evaluations: batch loops that train or evaluate, as a flag says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loop, Loops, Role
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.training.updates import Act, Updates
from torchlint.semantic.values.calls import Calls
from torchlint.semantic.values.gradient import Grad

_GRADS: Final = ("torch.no_grad", "torch.set_grad_enabled", "torch.inference_mode")


class FlaggedEvaluation(NamedTuple):
    """An evaluation that a flag chooses: where it starts, and the test that is false in it."""

    loop: Loop
    branch: cst.If
    """The part of the loop that trains."""
    test: cst.BaseExpression
    place: cst.CSTNode
    """The loop itself, or the call of its function that sets the flag."""
    function: cst.FunctionDef | None = None
    also_trains: bool = False
    """Whether the same place trains in other passes, as `for phase in ("train", "val")` says."""


class FlaggedEvaluations(LoopAnalysis):
    """Finds the evaluations of loops that go backward only where a test of a flag holds."""

    def __init__(self, loops: Loops, updates: Updates, calls: Calls) -> None:
        super().__init__(loops)
        self.updates = updates
        self.calls = calls

    @cached_property
    def all(self) -> tuple[FlaggedEvaluation, ...]:
        """Every such evaluation, in the order of the loops."""
        return tuple(
            each
            for loop in self.loops.all()
            if loop.role is Role.TRAIN_BATCH
            for each in self._of_loop(loop)
        )

    def _of_loop(self, loop: Loop) -> Iterator[FlaggedEvaluation]:
        branch = self._backward_branch(loop)
        if branch is None or not any(True for _ in self.forwards(loop, branch)):
            return
        test = self._asked(branch.test)
        flag = _flag(test)
        binding = self.scopes.only(flag)
        if flag is None:
            return
        if binding.how is How.LOOP and isinstance(test, cst.Comparison):
            around = [outer.node for outer in self.loops.around(loop.node)]
            if binding.node in around and _compares_text(test):
                yield FlaggedEvaluation(loop, branch, test, loop.node, also_trains=True)
        elif isinstance(binding.node, cst.Param):
            function = self.scopes.function(loop.node)
            if function is not None:
                found = FlaggedEvaluation(loop, branch, test, flag)
                yield from self._calls(function, binding.node, found)

    def forwards(self, loop: Loop, branch: cst.If) -> Iterator[cst.Call]:
        """Yield the calls of a loop that run a network outside the branch that trains."""
        calls = self.tree.within(loop.node.body, cst.Call)
        return self._running(call for call in calls if not self.tree.inside(call, branch.body))

    def records(self, evaluation: FlaggedEvaluation) -> bool:
        """Return whether nothing in view turns recording off for an evaluation."""
        if self._sets_mode(evaluation.loop):
            return False
        if evaluation.function is None:
            return True
        within = self.tree.ancestors(evaluation.place)
        modes = [item.item for at in within if isinstance(at, cst.With) for item in at.items]
        if any(self.gradients.mode(each) is not Grad.ON for each in modes):
            return False
        caller = self.scopes.function(evaluation.place)
        return caller is None or not caller.decorators

    def _backward_branch(self, loop: Loop) -> cst.If | None:
        """Return the one `if` of a loop in whose body all its backward passes stand."""
        found: set[cst.If] = set()
        acts = [each for each in self.updates.within(loop.node.body) if each.act is Act.BACKWARD]
        for act in acts:
            branches = [
                outer
                for outer in self.tree.ancestors(act.at)
                if isinstance(outer, cst.If)
                and self.tree.inside(outer, loop.node.body)
                and self.tree.inside(act.at, outer.body)
                and _flag(outer.test) is not None
            ]
            if not branches:
                return None
            found.add(branches[-1])
        return found.pop() if len(found) == 1 else None

    def _asked(self, test: cst.BaseExpression) -> cst.BaseExpression:
        """Return the test itself, or the one that a name before the loop keeps the result of."""
        kept = self.scopes.only(test).assigned
        return kept if kept is not None and _flag(kept) is not None else test

    def _sets_mode(self, loop: Loop) -> bool:
        """Return whether the code around a loop chooses itself when to record."""
        home = self.scopes.function(loop.node) or self.tree.module
        return any(
            self.tree.inside(site.node, home) and not self._stands_aside(site.node, loop)
            for site in self.calls.of(*_GRADS)
        ) or any(
            mark in self.tree.code(decorator)
            for decorator in getattr(home, "decorators", ())
            for mark in ("grad", "inference")
        )

    def _stands_aside(self, mode: cst.CSTNode, loop: Loop) -> bool:
        """Return whether a mode covers only lines of a loop that run no network (its metrics)."""
        around = next((at for at in self.tree.ancestors(mode) if isinstance(at, cst.With)), None)
        return (
            around is not None
            and self.tree.inside(around, loop.node.body)
            and not any(True for _ in self._running(self.tree.within(around.body, cst.Call)))
        )

    def _running(self, calls: Iterable[cst.Call]) -> Iterator[cst.Call]:
        """Yield those of some calls that run a network, or a function that does."""
        for call in calls:
            callee = self.functions.callee(call)
            if self.loops.module_call(call) is not None or (
                callee is not None and self.loops.runs_module(callee.body)
            ):
                yield call

    def _calls(
        self, function: cst.FunctionDef, flag: cst.Param, found: FlaggedEvaluation
    ) -> Iterator[FlaggedEvaluation]:
        """Yield the calls of a function in which its loop only evaluates."""
        for call in self.functions.callers(function):
            splat = any(arg.star for arg in call.args)
            given = self.functions.passed(call, function, flag.name.value) or flag.default
            if given is None or splat:
                continue
            turns = self._takes_turns(given, found.test)
            if turns or self._is_off(given, found.test):
                yield found._replace(place=call, function=function, also_trains=turns)

    def _takes_turns(self, given: cst.BaseExpression, test: cst.BaseExpression) -> bool:
        """Return whether a loop around a call gives the text that a test wants, and others."""
        binding = self.scopes.only(given)
        if binding.how is not How.LOOP:
            return False
        if not isinstance(test, cst.Comparison) or not _compares_text(test):
            return False
        drawn = binding.value
        given_to = drawn.elements if isinstance(drawn, (cst.List, cst.Tuple)) else ()
        texts = {self.values.value_of(each.value).literal for each in given_to}
        wanted = self.values.value_of(test.comparisons[0].comparator).literal
        return len(texts) > 1 and wanted in texts and all(isinstance(each, str) for each in texts)

    def _is_off(self, given: cst.BaseExpression, test: cst.BaseExpression) -> bool:
        """Return whether a given value makes a test false."""
        value = self.values.value_of(given)
        if isinstance(test, cst.UnaryOperation):
            return value.equals(True)
        if isinstance(test, cst.Comparison) and _compares_text(test):
            wanted = self.values.value_of(test.comparisons[0].comparator).literal
            return isinstance(value.literal, str) and value.literal != wanted
        return value.equals(False) or value.equals(None)


def _flag(test: cst.BaseExpression) -> cst.Name | None:
    """Return the name that a test like `train`, `not val`, `optimizer is not None` asks."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test = test.expression
        return test if isinstance(test, cst.Name) else None
    if isinstance(test, cst.Name):
        return test
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    asked = test.comparisons[0]
    if not isinstance(test.left, cst.Name):
        return None
    nothing = isinstance(asked.comparator, cst.Name) and asked.comparator.value == "None"
    if isinstance(asked.operator, cst.IsNot) and nothing:
        return test.left
    return test.left if _compares_text(test) else None


def _compares_text(test: cst.Comparison) -> bool:
    asked = test.comparisons[0]
    return isinstance(asked.operator, cst.Equal) and isinstance(asked.comparator, cst.SimpleString)
