"""Gradient accumulation: loops that sum gradients over passes before an optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Final, NamedTuple

import libcst as cst

from torchlint.edit import Span
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loop, LoopNode, Loops
from torchlint.semantic.loops.stepfunctions import StepFunctions
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import last_line, method_of, named_arguments
from torchlint.semantic.values.options import Options

_STEPPING: Final = frozenset("update_grad need_update".split())
"""Keywords that make a helper step the optimizer after the backward pass."""
_CLEARING: Final = frozenset("zero_grad clear_grad".split())
_LOOPS: Final = (cst.For, cst.While)
_LEAVING: Final = (cst.Continue, cst.Break, cst.Return, cst.Raise)
_Pass = LoopNode | cst.FunctionDef


class GradientAccumulation(NamedTuple):
    """A loop that runs backward in each pass and steps an optimizer after several.

    `test` selects the passes that step: the test of `closing`, the `if` around the step, or an
    argument of a helper. Both are None if the optimizer steps behind the loop. The test of
    `skipping`, an `if` that ends the passes that do not step, selects the others.
    """

    loop: Loop
    backwards: tuple[cst.Call, ...]
    closing: cst.If | None
    test: cst.BaseExpression | None
    skipping: cst.If | None = None

    @property
    def around(self) -> LoopNode:
        """The code that runs once in each pass."""
        return self.loop.node


class PassFunction(NamedTuple):
    """A function of one pass that runs backward and steps an optimizer under `closing`."""

    around: cst.FunctionDef
    backwards: tuple[cst.Call, ...]
    closing: cst.If

    @property
    def test(self) -> cst.BaseExpression:
        """The test that selects the passes that step."""
        return self.closing.test


class GradientAccumulations(LoopAnalysis):
    """Finds the loops, and the functions of one pass, that accumulate gradients."""

    def __init__(self, loops: Loops, step_functions: StepFunctions) -> None:
        super().__init__(loops)
        self.step_functions = step_functions
        self.options = Options(self.values)

    def is_off(self, test: cst.BaseExpression | None) -> bool:
        """Return whether an option of one pass by default makes a test true in every pass."""
        if test is None:
            return False
        found = (
            self.options.of(each.right)
            for each in self.tree.within(test, cst.BinaryOperation)
            if isinstance(each.operator, cst.Modulo)
        )
        return any(option is not None and option.default == 1 for option in found)

    def windows(self) -> Iterator[GradientAccumulation | PassFunction]:
        """Yield every loop, and every function of one pass, that accumulates gradients."""
        yield from self.all()
        yield from self.of_functions()

    def of_functions(self) -> Iterator[PassFunction]:
        """Yield every function of one pass that steps once in several calls."""
        for function in self.tree.all(cst.FunctionDef):
            calls = [*self.functions.own(function.body, cst.Call)]
            backwards = [call for call in calls if method_of(call) == "backward"]
            if not backwards or not self.step_functions.is_pass(function):
                continue
            steps = [call for call in calls if self.loops.is_update(call)]
            closings = {self._closing(step, function) for step in steps}
            closing = closings.pop() if len(closings) == 1 else None
            if closing is None or self._clears(function, besides=closing):
                continue
            if not any(self.tree.inside(call, closing) for call in backwards):
                yield PassFunction(function, tuple(backwards), closing)

    def all(self) -> Iterator[GradientAccumulation]:
        """Yield every loop that accumulates gradients, in source order."""
        for loop in self.loops.all():
            own = list(self._own(loop))
            told = [call for call in own if self._stepping(call) is not None]
            backwards = [call for call in own if method_of(call) == "backward"]
            if told:
                yield GradientAccumulation(loop, (told[0],), None, self._stepping(told[0]))
            elif backwards:
                yield from self._accumulation(loop, backwards)

    def closes(self, span: Span) -> bool:
        """Return whether code runs only where an optimizer steps, once in several passes."""
        return any(
            self.tree.is_own(line)
            and self.tree.holds(line.body, span)
            and next(self.loops.around(line), None) is not None
            and self._counts(line.test)
            and any(map(self.loops.is_update, self.functions.own(line.body, cst.Call)))
            for line in self.tree.all(cst.If)
        )

    def through_helpers(self) -> Iterator[GradientAccumulation]:
        """Yield every loop whose passes only call functions that run backward, as `backwards`."""
        for loop in self.loops.all():
            own = list(self._own(loop))
            helping = [call for call in own if self._runs_backward(call)]
            if helping and not any(method_of(call) == "backward" for call in own):
                yield from self._accumulation(loop, helping)

    def _runs_backward(self, call: cst.Call) -> bool:
        """Return whether a call runs a function that adds to the gradients, and leaves them."""
        function = self.functions.callee(call)
        if function is None:
            return False
        run = list(self.functions.run_in(function.body))
        return any(method_of(each) == "backward" for each in run) and not any(
            method_of(each) in ("step", *_CLEARING) for each in run
        )

    def _accumulation(
        self, loop: Loop, backwards: list[cst.Call]
    ) -> Iterator[GradientAccumulation]:
        """Yield a loop if it steps once in several passes, which all run backward."""
        own = self.functions.own(loop.node.body, cst.Call)
        steps = [call for call in own if self.loops.is_update(call)]
        found = (
            self._closed_inside(loop, backwards, steps)
            if steps
            else self._closed_behind(loop, backwards)
        )
        if found is not None:
            yield found

    def _closed_inside(
        self, loop: Loop, backwards: list[cst.Call], steps: list[cst.Call]
    ) -> GradientAccumulation | None:
        closings = {self._closing(step, loop.node) for step in steps}
        closing = closings.pop()
        if closing is None and not closings:
            return self._skipped(loop, backwards, steps)
        if closings or closing is None:
            return None
        if any(self.tree.inside(call, closing) for call in backwards):
            return None
        if self._clears(loop.node, besides=closing):
            return None
        return GradientAccumulation(loop, tuple(backwards), closing, closing.test)

    def _skipped(
        self, loop: Loop, backwards: list[cst.Call], steps: list[cst.Call]
    ) -> GradientAccumulation | None:
        """Return a loop of which most passes end before the step: `if i % k: continue`."""
        lines = loop.node.body.body
        for at, line in enumerate(lines):
            if not isinstance(line, cst.If) or line.orelse is not None:
                continue
            if not isinstance(last_line(line.body), cst.Continue) or not self._counts(line.test):
                continue
            passed = [each for each in lines[: at + 1] if isinstance(each, cst.BaseStatement)]
            early = any(self.tree.inside(call, each) for each in passed for call in steps)
            late = any(self.tree.order(call) > self.tree.order(line) for call in backwards)
            if early or late or any(self._clears_in(each, loop.node) for each in passed):
                return None
            return GradientAccumulation(loop, tuple(backwards), None, line.test, line)
        return None

    def _closed_behind(self, loop: Loop, backwards: list[cst.Call]) -> GradientAccumulation | None:
        """Return a loop over the parts of one batch (`for micro_step in range(k):`)."""
        if not isinstance(loop.node, cst.For) or self._clears(loop.node):
            return None
        outer = next(self.loops.around(loop.node), None) or self.scopes.function(loop.node)
        if outer is None:
            return None
        if self.kinds.loader(loop.node.iter) is not None:
            return None
        calls = self._behind(loop.node, CALLED)
        before = list(takewhile(lambda call: not self.loops.is_update(call), calls))
        thrown = any(method_of(call) in _CLEARING and not self._gives_up(call) for call in before)
        is_stepped = len(before) < len(calls) and not thrown
        return GradientAccumulation(loop, tuple(backwards), None, None) if is_stepped else None

    def _behind(self, line: cst.CSTNode, depth: int) -> list[cst.Call]:
        """Return the calls after a statement in its block.

        Where none of them steps, what follows the one call of its function comes next.
        """
        block, function = self.tree.parent(line), self.scopes.function(line)
        if not isinstance(block, cst.IndentedBlock):
            return []
        lines = block.body[block.body.index(line) + 1 :]
        calls = [call for each in lines for call in self.functions.own(each, cst.Call)]
        callers = (
            self.functions.callers(function)
            if function is not None and block is function.body and depth
            else []
        )
        if len(callers) == 1 and not any(map(self.loops.is_update, calls)):
            calls += self._behind(self.tree.statement(callers[0]), depth - 1)
        return calls

    def _own(self, loop: Loop) -> Iterator[cst.Call]:
        """Yield the calls directly in a loop's passes, not in inner loops."""
        for call in self.functions.own(loop.node.body, cst.Call):
            if self.loops.innermost(call) is loop.node:
                yield call

    def _stepping(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the argument that makes a helper step (`loss_scaler(…, update_grad=last)`)."""
        told = named_arguments(call, *_STEPPING)[:1]
        return told[0] if told and self._counts(told[0]) else None

    def _closing(self, step: cst.Call, around: _Pass) -> cst.If | None:
        """Return the outermost `if` of a pass that lets a step run once in several passes."""
        found: cst.If | None = None
        for child, outer in self.tree.outward(step):
            if outer is around:
                return found
            if isinstance(outer, _LOOPS):
                return None
            if isinstance(outer, cst.If) and child is outer.body and self._counts(outer.test):
                found = outer
        return None

    def _counts(self, test: cst.BaseExpression) -> bool:
        """Return whether a test is true once in several passes."""
        if self._takes_remainder(test):
            return True
        names = [name.value for name in self.tree.within(test, cst.Name)]
        names += [node.attr.value for node in self.tree.within(test, cst.Attribute)]
        if any(word.startswith("accum") for name in names for word in words(name)):
            return True
        value = self.scopes.only(test).value
        return value is not None and self._takes_remainder(value)

    def _takes_remainder(self, node: cst.BaseExpression) -> bool:
        return any(
            isinstance(each.operator, cst.Modulo)
            for each in self.tree.within(node, cst.BinaryOperation)
        )

    def _clears(self, around: _Pass, besides: cst.If | None = None) -> bool:
        """Return whether each pass clears the gradients of the previous one."""
        return self._clears_in(around.body, around, besides)

    def _clears_in(self, region: cst.CSTNode, around: _Pass, besides: cst.If | None = None) -> bool:
        return any(
            method_of(call) in _CLEARING
            and not (besides is not None and self.tree.inside(call, besides))
            and not self._guarded(call, around)
            and not self._gives_up(call)
            for call in self.functions.own(region, cst.Call)
        )

    def _gives_up(self, clear: cst.Call) -> bool:
        """Return whether gradients are thrown away in an `if` that leaves the pass."""
        block = self.tree.parent(self.tree.statement(clear))
        return (
            isinstance(block, cst.BaseSuite)
            and isinstance(self.tree.parent(block), cst.If)
            and isinstance(last_line(block), _LEAVING)
        )

    def _guarded(self, node: cst.CSTNode, around: _Pass) -> bool:
        """Return whether an `if` that counts passes encloses a node within a pass."""
        return any(
            self._counts(test)
            for test in self.tree.tests_around(node)
            if self.tree.inside(test, around)
        )
