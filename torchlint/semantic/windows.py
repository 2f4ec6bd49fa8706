"""Windows: passes of a loop whose gradients add up until an optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.record import Record
from torchlint.semantic.functions import Functions
from torchlint.semantic.loops import Loop, Loops
from torchlint.semantic.scopes import How, dotted
from torchlint.semantic.values import State, Values
from torchlint.semantic.words import words

__all__ = ["Window", "Windows"]

_STEPPING: Final = frozenset("update_grad need_update".split())
"""Keywords by which a helper that sends the loss backward is told to step as well."""
_CLEARING: Final = frozenset("zero_grad clear_grad".split())
_LOOPS: Final = (cst.For, cst.While)


class Window(Record):
    """A loop that sends a loss backward in each pass and steps an optimizer after several.

    `test` says in which passes it steps: of `closing`, the `if` around the step, or handed to a
    helper. Both are None where the optimizer steps behind the loop.
    """

    loop: Loop
    backwards: tuple[cst.Call, ...]
    closing: cst.If | None
    test: cst.BaseExpression | None


class Windows:
    """Finds the loops that accumulate gradients."""

    def __init__(self, functions: Functions, values: Values, loops: Loops) -> None:
        self.functions = functions
        self.values = values
        self.loops = loops
        self.tree = functions.tree

    def all(self) -> Iterator[Window]:
        """Yield every loop that accumulates, in the order of the source."""
        for loop in self.loops.all():
            found = self._window(loop)
            if found is not None:
                yield found

    def _window(self, loop: Loop) -> Window | None:
        own = list(self._own(loop))
        told = [call for call in own if self._stepping(call) is not None]
        if told:
            return Window(loop, (told[0],), None, self._stepping(told[0]))
        backwards = [call for call in own if self._is(call, "backward")]
        if not backwards:
            return None
        steps = [
            call
            for call in self.functions.own(loop.node.body, cst.Call)
            if self._is(call, "step") and self.loops.is_step(call)
        ]
        if not steps:
            return self._closed_behind(loop, backwards)
        return self._closed_inside(loop, backwards, steps)

    def _closed_inside(
        self, loop: Loop, backwards: list[cst.Call], steps: list[cst.Call]
    ) -> Window | None:
        closings = {self._closing(step, loop) for step in steps}
        closing = closings.pop()
        if closings or closing is None:
            return None
        if any(self.tree.inside(call, closing) for call in backwards):
            return None
        if self._clears(loop, besides=closing):
            return None
        return Window(loop, tuple(backwards), closing, closing.test)

    def _closed_behind(self, loop: Loop, backwards: list[cst.Call]) -> Window | None:
        """Judge a loop over the parts of one batch (`for micro_step in range(k):`)."""
        if not isinstance(loop.node, cst.For) or self._clears(loop):
            return None
        outer = next(self.loops.around(loop.node), None)
        block = self.tree.parent(loop.node)
        if outer is None or not isinstance(block, cst.IndentedBlock) or loop.loader is not None:
            return None
        behind = block.body[block.body.index(loop.node) + 1 :]
        calls = [call for line in behind for call in self.functions.own(line, cst.Call)]
        steps = [call for call in calls if self._is(call, "step") and self.loops.is_step(call)]
        cleared = [call for call in calls if any(self._is(call, word) for word in _CLEARING)]
        thrown = any(self.tree.order(one) < self.tree.order(steps[0]) for one in cleared if steps)
        return Window(loop, tuple(backwards), None, None) if steps and not thrown else None

    def _own(self, loop: Loop) -> Iterator[cst.Call]:
        """Yield the calls of a loop's own passes, those of loops inside left out."""
        for call in self.functions.own(loop.node.body, cst.Call):
            if self.loops.innermost(call) is loop.node:
                yield call

    def _is(self, call: cst.Call, method: str) -> bool:
        func = call.func
        return isinstance(func, cst.Attribute) and func.attr.value == method

    def _stepping(self, call: cst.Call) -> cst.BaseExpression | None:
        """Give what tells a helper to step (`loss_scaler(loss, optimizer, update_grad=last)`)."""
        for arg in call.args:
            if arg.keyword is not None and arg.keyword.value in _STEPPING:
                return arg.value if self._counts(arg.value) else None
        return None

    def _closing(self, step: cst.Call, loop: Loop) -> cst.If | None:
        """Give the outermost `if` of a loop that lets a step run once in several passes."""
        found: cst.If | None = None
        child: cst.CSTNode = step
        for outer in self.tree.ancestors(step):
            if outer is loop.node:
                return found
            if isinstance(outer, _LOOPS):
                return None
            if isinstance(outer, cst.If) and child is outer.body and self._counts(outer.test):
                found = outer
            child = outer
        return None

    def _counts(self, test: cst.BaseExpression) -> bool:
        """Whether a test lets one pass in several through."""
        if self._takes_remainder(test):
            return True
        names = [name.value for name in self.tree.within(test, cst.Name)]
        names += [node.attr.value for node in self.tree.within(test, cst.Attribute)]
        if any(word.startswith("accum") for name in names for word in words(name)):
            return True
        value = self._only_value(test)
        return value is not None and self._takes_remainder(value)

    def _takes_remainder(self, node: cst.BaseExpression) -> bool:
        return any(
            isinstance(each.operator, cst.Modulo)
            for each in self.tree.within(node, cst.BinaryOperation)
        )

    def _only_value(self, test: cst.BaseExpression) -> cst.BaseExpression | None:
        """Give what a name that is itself the test was made of."""
        if not isinstance(test, cst.Name):
            return None
        bindings = self.functions.scopes.reaching(test)
        return bindings[0].value if len(bindings) == 1 else None

    def _clears(self, loop: Loop, besides: cst.If | None = None) -> bool:
        """Whether each pass of a loop throws the gradients of the last away."""
        for call in self.functions.own(loop.node.body, cst.Call):
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value in _CLEARING:
                if besides is not None and self.tree.inside(call, besides):
                    continue
                if not self._guarded(call, loop):
                    return True
        return False

    def _guarded(self, node: cst.CSTNode, loop: Loop) -> bool:
        """Whether an `if` of the loop's own passes that counts stands around a node."""
        child = node
        for outer in self.tree.ancestors(node):
            if outer is loop.node:
                return False
            if isinstance(outer, cst.If) and child is outer.body and self._counts(outer.test):
                return True
            child = outer
        return False

    def last_pass(self, loop: Loop) -> str | None:
        """Give the test for the last pass over a loader (`i + 1 == len(loader)`).

        None where nothing counts the passes, or the file never asks for the length of the loader.
        """
        node, loader = loop.node, loop.loader
        if not isinstance(node, cst.For) or not isinstance(node.target, cst.Tuple):
            return None
        drawn, counter = node.iter, node.target.elements[0].value
        names = self.functions.names
        if not isinstance(drawn, cst.Call) or names.name(drawn.func) != "builtins.enumerate":
            return None
        if not isinstance(counter, cst.Name) or not isinstance(loader, (cst.Name, cst.Attribute)):
            return None
        if not self._is_measured(loader) or self._goes_on(counter):
            return None
        start = self.values.argument(drawn, "start", 1)
        length = f"len({self.tree.code(loader)})"
        if start.equals(1):
            return f"{counter.value} == {length}"
        from_zero = start.state is State.ABSENT or start.equals(0)
        return f"{counter.value} + 1 == {length}" if from_zero else None

    def _is_measured(self, loader: cst.Name | cst.Attribute) -> bool:
        """Whether the file asks for the length of a loader."""
        return any(
            self.functions.names.name(call.func) == "builtins.len"
            and dotted(call.args[0].value) == dotted(loader)
            for call in self.tree.all(cst.Call)
            if call.args
        )

    def _goes_on(self, counter: cst.Name) -> bool:
        """Whether something but its loop changes a counter."""
        bindings = self.functions.scopes.scope(counter).bindings.get(counter.value, [])
        return any(binding.how is How.AUGMENTED for binding in bindings)
