"""Flagged evaluations: batch loops, and functions, that train or evaluate as a flag says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops, Role
from torchlint.semantic.loops.modes import Mode, Modes
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import receiver_of
from torchlint.semantic.training.updates import Act, Updates
from torchlint.semantic.values.calls import Calls
from torchlint.semantic.values.gradient import Grad

_GRADS: Final = ("torch.no_grad", "torch.set_grad_enabled", "torch.inference_mode")
_EQUALITIES: Final = (cst.Equal, cst.NotEqual, cst.Is, cst.IsNot, cst.In, cst.NotIn)


Region = cst.For | cst.While | cst.FunctionDef
"""A loop over batches, or a function for one batch."""


Flag = cst.Name | cst.Attribute


class Branch(NamedTuple):
    """The part of a region that trains: a suite of an `if`, and the outcome of the test for it."""

    suite: cst.CSTNode
    test: cst.BaseExpression
    flag: Flag
    """The name whose value decides the test, or the `training` of a network."""
    outcome: bool


class FlaggedEvaluation(NamedTuple):
    """An evaluation that a flag chooses: where it starts, and the branch that it leaves out."""

    region: Region
    branch: Branch
    place: cst.CSTNode
    """The loop itself, or the call of its function that sets the flag."""
    through: tuple[cst.FunctionDef, ...] = ()
    """The functions that hand the flag on, the one that the place calls last."""
    also_trains: bool = False
    """Whether the same place trains in other passes, as `for phase in ("train", "val")` says."""

    @property
    def function(self) -> cst.FunctionDef | None:
        """The function that the place calls."""
        return self.through[-1] if self.through else None


class FlaggedEvaluations(LoopAnalysis):
    """Finds the evaluations of code that goes backward only where a test of a flag holds."""

    def __init__(self, loops: Loops, modes: Modes, updates: Updates, calls: Calls) -> None:
        super().__init__(loops)
        self.modes = modes
        self.updates = updates
        self.calls = calls

    @cached_property
    def all(self) -> tuple[FlaggedEvaluation, ...]:
        """Every such evaluation, in the order of the loops, then of the functions."""
        loops = [loop.node for loop in self.loops.all() if loop.role is Role.TRAIN_BATCH]
        acts = [call for call in self.tree.all(cst.Call) if self.updates.act(call) is Act.BACKWARD]
        regions = (*loops, *self._alone(acts))
        return tuple(each for region in regions for each in self._of_region(region))

    def _alone(self, calls: list[cst.Call]) -> list[cst.FunctionDef]:
        """Return the functions that go backward in no loop, or call one that always does."""
        found: dict[cst.FunctionDef, None] = {}
        for call in calls:
            around, home = next(self.loops.around(call), None), self.scopes.function(call)
            if home is not None and (around is None or not self.tree.inside(around.node, home)):
                if home not in found and self._backward_branch(home) is None:
                    calls += self.functions.callers(home)
                found[home] = None
        return list(found)

    def _of_region(self, region: Region) -> Iterator[FlaggedEvaluation]:
        branch = self._backward_branch(region)
        if branch is None or not any(True for _ in self.forwards(region, branch)):
            return
        yield from self._chosen(branch.flag, FlaggedEvaluation(region, branch, region))

    def _chosen(self, flag: Flag, found: FlaggedEvaluation) -> Iterator[FlaggedEvaluation]:
        """Yield the evaluations that a flag chooses where it is asked, or at calls around that."""
        binding, function = self.scopes.only(flag), self.scopes.function(flag)
        if isinstance(flag, cst.Attribute):
            yield from self._in_eval(flag.value, function, found)
        elif binding.how is How.LOOP:
            around = [outer.node for outer in self.loops.around(found.place)]
            if binding.node in around and self._takes_turns(flag, found.branch):
                yield found._replace(also_trains=True)
        elif isinstance(binding.node, cst.Param) and function is not None:
            yield from self._calls(function, binding.node, found)

    def _in_eval(
        self, network: cst.BaseExpression, home: cst.FunctionDef | None, found: FlaggedEvaluation
    ) -> Iterator[FlaggedEvaluation]:
        """Yield the calls, after `eval()`, of the function around a region that heeds the mode."""
        node = self.scopes.only(network).node
        if self._outcome(found.branch, False) is not (not found.branch.outcome):
            return
        for call, here in self._callers(home, found):
            named = node.name.value if isinstance(node, cst.Param) else ""
            given = self.functions.passed(call, here.through[-1], named) or network
            last = self.modes.last_switch(call, given)
            if last is None:
                yield from self._in_eval(given, self.scopes.function(call), here)
            elif last.mode is Mode.EVAL:
                if self.scopes.blocks(last.call)[0] in self.scopes.blocks(call):
                    yield here

    def _callers(
        self, function: cst.FunctionDef | None, found: FlaggedEvaluation
    ) -> Iterator[tuple[cst.Call, FlaggedEvaluation]]:
        """Yield the calls of a function, each with what is found as it stands there."""
        if function is not None and function not in found.through:
            for call in self.functions.callers(function):
                yield call, found._replace(place=call, through=(*found.through, function))

    def forwards(self, region: Region, branch: Branch) -> Iterator[cst.Call]:
        """Yield the calls of a region that run a network outside the branch that trains."""
        calls = self.tree.within(region.body, cst.Call)
        return self._running(call for call in calls if not self.tree.inside(call, branch.suite))

    def records(self, evaluation: FlaggedEvaluation) -> bool:
        """Return whether nothing in view turns recording off for an evaluation."""
        home = self.scopes.function(evaluation.branch.suite) or self.tree.module
        if any(map(self._sets_mode, (home, *evaluation.through))):
            return False
        if evaluation.function is None:
            return True
        caller = self.scopes.function(evaluation.place)
        if caller is not None and any(
            self.functions.definition(each.decorator) is not None for each in caller.decorators
        ):
            return False
        return self.gradients.grad(evaluation.place) is Grad.ON

    def _backward_branch(self, region: Region) -> Branch | None:
        """Return the one part of a region, chosen by a flag, with all its backward passes."""
        found: set[Branch] = set()
        acts = [each for each in self.updates.within(region.body) if each.act is Act.BACKWARD]
        for act in acts:
            branches = [
                branch
                for outer in self.tree.ancestors(act.at)
                if isinstance(outer, cst.If) and self.tree.inside(outer, region.body)
                for branch in self._branches(outer)
                if self.tree.inside(act.at, branch.suite)
            ]
            if not branches:
                return None
            found.add(branches[-1])
        return found.pop() if len(found) == 1 else None

    def _branches(self, outer: cst.If) -> Iterator[Branch]:
        """Yield the parts of an `if` that a parameter, or the target of a loop, chooses."""
        kept = self.scopes.only(outer.test).assigned
        for test in (outer.test, kept) if kept is not None else (outer.test,):
            for flag in _flags(test):
                binding = self.scopes.only(flag)
                mode = isinstance(flag, cst.Attribute)
                if mode or binding.how is How.LOOP or isinstance(binding.node, cst.Param):
                    yield Branch(outer.body, test, flag, outcome=True)
                    if outer.orelse is not None:
                        yield Branch(outer.orelse, test, flag, outcome=False)
                    return

    def _sets_mode(self, home: cst.CSTNode) -> bool:
        """Return whether code around a region, or that leads there, chooses when to record."""
        return any(
            self.tree.inside(site.node, home) and not self._stands_aside(site.node)
            for site in self.calls.of(*_GRADS)
        ) or any(
            mark in self.tree.code(decorator)
            for decorator in getattr(home, "decorators", ())
            for mark in ("grad", "inference")
        )

    def _stands_aside(self, mode: cst.CSTNode) -> bool:
        """Return whether a mode covers only lines that run no network, such as metrics."""
        around = next((at for at in self.tree.ancestors(mode) if isinstance(at, cst.With)), None)
        return around is not None and not any(
            True for _ in self._running(self.tree.within(around.body, cst.Call))
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
        """Yield the calls of a function, or of one that hands a flag on, in which it evaluates."""
        for call, here in self._callers(function, found):
            splat = any(arg.star for arg in call.args)
            given = self.functions.passed(call, function, flag.name.value) or flag.default
            if given is None or splat:
                continue
            turns = self._takes_turns(given, found.branch)
            outcome = self._outcome(found.branch, self.values.value_of(given).literal)
            if turns or outcome is (not found.branch.outcome):
                yield here._replace(also_trains=turns)
            elif outcome is None and given is not flag.default:
                for branch, own in self._handed(given, found.branch):
                    yield from self._chosen(own, here._replace(branch=branch))

    def _handed(self, given: cst.BaseExpression, branch: Branch) -> Iterator[tuple[Branch, Flag]]:
        """Yield a branch as a caller chooses it, by a flag of its own or by a test of one."""
        test = self.scopes.only(given).assigned or given
        for flag in _flags(test):
            if flag is test:
                yield branch, flag
                continue
            for value in (True, False):
                if self._outcome(branch, value) is (not branch.outcome):
                    yield Branch(branch.suite, test, flag, not value), flag

    def _takes_turns(self, given: cst.BaseExpression, branch: Branch) -> bool:
        """Return whether a loop around a call gives values that train, and others."""
        binding = self.scopes.only(given)
        if binding.how is not How.LOOP or binding.value is None:
            return False
        drawn = [
            one for each in self._drawn(given, binding) for one in self.origins.of(each).values
        ]
        outcomes = {self._outcome(branch, self.values.value_of(each).literal) for each in drawn}
        return outcomes == {True, False}

    def _drawn(self, given: cst.BaseExpression, binding: Binding) -> list[cst.BaseExpression]:
        """Return the keys of a dictionary that a loop draws from, else the target itself."""
        assert binding.value is not None
        named = receiver_of(binding.value, "items" if binding.path == (0,) else "keys")
        source = self.values.value_of(named or binding.value).node
        if (binding.path and named is None) or not isinstance(source, (cst.Dict, cst.DictComp)):
            return [given]
        if isinstance(source, cst.DictComp):
            return [source.key]
        return [each.key for each in source.elements if isinstance(each, cst.DictElement)]

    def _outcome(self, branch: Branch, given: object) -> bool | None:
        """Return the outcome of a branch's test for a literal flag, None if it is not known."""

        def outcome(test: cst.BaseExpression) -> bool | None:
            match test:
                case cst.Name() | cst.Attribute() if test is branch.flag:
                    return bool(given) if given is None or isinstance(given, (bool, str)) else None
                case cst.UnaryOperation(expression=asked):
                    found = outcome(asked)
                    return None if found is None else not found
                case cst.BooleanOperation(left=left, right=right):
                    return False if False in (outcome(left), outcome(right)) else None
                case cst.Comparison(left=left, comparisons=[asked]) if left is branch.flag:
                    wanted = self.values.value_of(asked.comparator).literal
                    return _compared(asked.operator, given, wanted)
            return None

        return outcome(branch.test)


def _compared(operator: cst.BaseCompOp, given: object, wanted: object) -> bool | None:
    """Return the outcome of a comparison with a literal, None if it is not known."""
    match operator:
        case cst.Is() | cst.IsNot():
            equal = given is wanted if given is None or isinstance(given, bool) else None
        case cst.In() | cst.NotIn():
            listed = wanted if isinstance(wanted, tuple) and isinstance(given, str) else None
            equal = given in listed if listed is not None else None
        case _:
            equal = given == wanted if isinstance(given, (str, bool)) else None
    negated = isinstance(operator, (cst.IsNot, cst.NotIn, cst.NotEqual))
    return None if equal is None else equal is not negated


def _flags(test: cst.BaseExpression) -> Iterator[Flag]:
    """Yield what a test like `train`, `net.training`, `optimizer is not None` asks."""
    match test:
        case cst.Name() | cst.Attribute(attr=cst.Name("training")):
            yield test
        case cst.UnaryOperation(operator=cst.Not(), expression=asked):
            yield from _flags(asked)
        case cst.BooleanOperation(operator=cst.And(), left=left, right=right):
            yield from _flags(left)
            yield from _flags(right)
        case cst.Comparison(left=cst.Name() as name, comparisons=[asked]):
            if isinstance(asked.operator, _EQUALITIES):
                yield name
