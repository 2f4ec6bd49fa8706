"""Steps: training steps, each a backward pass and the forward passes before it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.loops import Loop, Loops, Role
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.training.lineage import Lineage
from torchlint.semantic.values.facts import ValueFacts
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.losses import sent

_BOUND: Final = (How.ASSIGN, How.UNPACKED, How.AUGMENTED)
_NO_FORWARD: Final = frozenset(
    "parameters named_parameters modules children state_dict load_state_dict train eval to "
    "cuda cpu zero_grad init_hidden initHidden init_weights half float requires_grad_ "
    "get_parameters backward step clone generate".split()
)


class Step(NamedTuple):
    """One backward pass of a training loop.

    `forwards` are the calls of networks (or of functions that run them) that compute the loss;
    `lines` are the adjacent statements from the first of them to the last one for the loss, empty
    if they are not in one block before the backward pass.
    """

    backward: cst.Call
    forwards: tuple[cst.Call, ...]
    lines: tuple[cst.BaseStatement, ...]


class Steps(LoopAnalysis):
    """Finds the steps of the training loops of a file."""

    values: ValueFacts

    def __init__(self, loops: Loops, frequencies: Frequencies, lineage: Lineage) -> None:
        super().__init__(loops)
        self.frequencies = frequencies
        self.lineage = lineage

    @cached_property
    def all(self) -> tuple[Step, ...]:
        """The steps whose loss comes from a network, in source order."""
        return tuple(
            step
            for call in self.tree.all(cst.Call)
            if self._is_backward(call)
            and self._is_trained(call)
            and (step := self._step(call)) is not None
        )

    def is_alone(self, step: Step) -> bool:
        """Return whether the loops around a step run no other backward pass."""
        home = self.scopes.function(step.backward)
        return all(len(set(self._backwards(body, home))) == 1 for body in self._passes(step))

    def run_on_host(self, step: Step) -> bool:
        """Return whether a step runs only networks that are known to stay on the host."""
        return all(
            network is not None and self.values.placement.runs_on_host(network, call)
            for call in step.forwards
            for network in (self.loops.module_call(call),)
        )

    def updates(self, step: Step) -> bool:
        """Return whether the loops around a step also change parameters."""
        loops = self.loops_of(step.backward)
        return all(self._updates(loop.node.body) or self._adds_up(loop, CALLED) for loop in loops)

    def _adds_up(self, loop: Loop, depth: int) -> bool:
        """Return whether a loop only adds up gradients, and the loops that call it update."""
        function = self.scopes.function(loop.node)
        calls = self.functions.callers(function) if function is not None and depth else []
        around = [outer for call in calls for outer in self.loops_of(call)]
        return bool(around) and all(
            self._updates(outer.node.body) or self._adds_up(outer, depth - 1) for outer in around
        )

    def _passes(self, step: Step) -> list[cst.BaseSuite]:
        return [loop.node.body for loop in self.loops_of(step.backward)]

    def _updates(self, region: cst.CSTNode) -> bool:
        """Return whether code, or code it runs, steps anything or iterates over parameters."""
        for call in self.functions.run_in(region):
            word = method_of(call)
            if word == "step" or (word.startswith("step") and not self.functions.callee(call)):
                return True
            if word in ("parameters", "named_parameters") and not self._only_freezes(call):
                return True
        return False

    def _only_freezes(self, parameters: cst.Call) -> bool:
        """Return whether a loop over parameters only sets whether they ask for gradients."""
        loop = self.tree.parent(parameters)
        if not isinstance(loop, cst.For) or loop.iter is not parameters:
            return False
        changed = [line.targets[0].target for line in self.tree.within(loop.body, cst.Assign)]
        changed += [line.target for line in self.tree.within(loop.body, cst.AugAssign)]
        calls = map(method_of, self.tree.within(loop.body, cst.Call))
        return all(call == "requires_grad_" for call in calls) and all(
            isinstance(each, cst.Attribute) and each.attr.value == "requires_grad"
            for each in changed
        )

    def _is_backward(self, call: cst.Call) -> bool:
        return self.functions.callee(call) is None and self.loops.goes_backward(call)

    def _is_trained(self, call: cst.Call) -> bool:
        if any(loop.role is Role.TRAIN_BATCH for loop in self.loops.around(call)):
            return True
        return self.frequencies.frequency(call) is Frequency.EVERY_PASS

    # -- other work of a loop ------------------------------------------------

    def loops_of(self, node: cst.CSTNode) -> list[Loop]:
        """Return the outermost training loops that run a node."""
        holders = map(self.tree.parent, self.code_around(node))
        return [self.loops.loop(each) for each in holders if isinstance(each, (cst.For, cst.While))]

    def code_around(self, node: cst.CSTNode, depth: int = CALLED) -> Iterator[cst.BaseSuite]:
        """Yield the outermost training loops that run a node, and the functions in between."""
        around = [loop for loop in self.loops.around(node) if loop.role is Role.TRAIN_BATCH]
        function = self.scopes.function(node)
        if around:
            yield around[-1].node.body
        elif function is not None and depth:
            yield function.body
            for call in self.functions.callers(function):
                yield from self.code_around(call, depth - 1)

    def _backwards(
        self, region: cst.CSTNode, method: cst.FunctionDef | None = None
    ) -> Iterator[int]:
        """Yield the backward passes that code runs, not those of other classes' same method."""
        for body in self.functions.reached(region):
            if method is not None and body is not method and isinstance(body, cst.FunctionDef):
                if body.name.value == method.name.value:
                    continue
            for call in self.functions.own(body, cst.Call):
                if self._is_backward(call) or (self.names.name(call.func) == "torch.autograd.grad"):
                    yield id(call)

    # -- one step -------------------------------------------------------------

    def _step(self, backward: cst.Call) -> Step | None:
        region = self._region(backward)
        values = [value for value in sent(backward) if self.kinds.kind(value) is not Kind.OPTIMIZER]
        nodes: list[cst.CSTNode] = [backward]
        parts: list[cst.BaseExpression] = list(values)
        for binding in self._behind(values, backward, region):
            nodes.append(binding.node)
            if binding.value is not None:
                parts.append(binding.value)
        forwards = self._forwards(parts) or self._far(values, backward)
        if not forwards or any(True for call in forwards if self._sends(call)):
            return None
        forwards.sort(key=self.tree.order)
        return Step(backward, tuple(forwards), self._lines(backward, forwards, nodes))

    def _region(self, backward: cst.Call) -> cst.CSTNode:
        """Return the code that repeats a step: its outermost training loop, else its function."""
        around = [loop for loop in self.loops.around(backward) if loop.role is Role.TRAIN_BATCH]
        if around:
            return around[-1].node.body
        return self.scopes.region(backward)

    def _behind(
        self, values: list[cst.BaseExpression], backward: cst.Call, region: cst.CSTNode
    ) -> Iterator[Binding]:
        """Yield the bindings before a backward pass that its loss depends on."""
        limit = self.tree.order(backward)
        seen: set[int] = set()
        pending = list(values)
        while pending:
            for binding in self._read_in(pending.pop()):
                if id(binding) in seen or binding.how not in _BOUND:
                    continue
                if binding.at >= limit or not self.tree.inside(binding.node, region):
                    continue
                seen.add(id(binding))
                yield binding
                if binding.value is not None:
                    pending.append(binding.value)

    def _read_in(self, value: cst.BaseExpression) -> Iterator[Binding]:
        for name in self.tree.within(value, cst.Name):
            yield from self.scopes.reaching(name)
        for attribute in self.tree.within(value, cst.Attribute):
            if isinstance(attribute.value, cst.Name) and attribute.value.value == "self":
                yield from self.functions.attribute(attribute)

    def _forwards(self, parts: list[cst.BaseExpression]) -> list[cst.Call]:
        calls = {id(call): call for part in parts for call in self.tree.within(part, cst.Call)}
        found = [call for call in calls.values() if self._runs(call)]
        return found or [call for call in calls.values() if self._asks_module(call)]

    def _far(self, values: list[cst.BaseExpression], backward: cst.Call) -> list[cst.Call]:
        """Return the calls of networks that a loss from elsewhere, or out of a list, is made of."""
        function = self.scopes.function(backward)
        if function is not None and len(self.functions.callers(function)) > 1:
            return []
        found = (call for each in values for call, _ in self.lineage.of(each).calls)
        return [
            call
            for call in dict.fromkeys(found)
            if self._is_trained(call) and method_of(call) not in _NO_FORWARD
        ]

    def _runs(self, call: cst.Call) -> bool:
        if self.loops.module_call(call) is not None:
            return True
        if isinstance(self.functions.definition(call.func), cst.ClassDef):
            return False
        callee = self.functions.callee(call)
        return callee is not None and self.loops.runs_module(callee)

    def _asks_module(self, call: cst.Call) -> bool:
        """Return whether a call is a method of a network (`model.loss(x)`)."""
        func = call.func
        return (
            isinstance(func, cst.Attribute)
            and func.attr.value not in _NO_FORWARD
            and self.kinds.kind(func.value) is Kind.MODULE
        )

    def _sends(self, call: cst.Call) -> bool:
        """Return whether a function called by a step runs a backward pass itself."""
        callee = self.functions.callee(call)
        return callee is not None and any(True for _ in self._backwards(callee.body))

    def _lines(
        self, backward: cst.Call, forwards: list[cst.Call], nodes: list[cst.CSTNode]
    ) -> tuple[cst.BaseStatement, ...]:
        line: cst.BaseStatement = self.tree.statement(backward)
        for outer in self.tree.ancestors(line):
            if isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
                break
            if isinstance(outer, (cst.IndentedBlock, cst.Module)) and line in outer.body:
                before = outer.body[: [*outer.body].index(line)]
                holding = [self._holds(each, forwards) for each in before]
                if sum(map(len, holding)) == len(forwards):
                    first = next(at for at, found in enumerate(holding) if found)
                    held = (at for at, each in enumerate(before) if self._holds(each, nodes))
                    lines = before[first : max([first, *held]) + 1]
                    return tuple(each for each in lines if isinstance(each, cst.BaseStatement))
            if isinstance(outer, cst.BaseStatement):
                line = outer
        return ()

    def _holds(self, line: cst.CSTNode, nodes: list[cst.Call] | list[cst.CSTNode]) -> list[int]:
        return [id(node) for node in nodes if self.tree.inside(node, line)]
