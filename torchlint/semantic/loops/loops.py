"""Loops: the loops of a file and their role: epochs, training batches, evaluation batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.caching import cached_method
from torchlint.semantic.loops.environments import Environments
from torchlint.semantic.loops.feeding import Feeding
from torchlint.semantic.loops.measuring import Measuring
from torchlint.semantic.scope.libraries import OTHER_ARRAYS, VIEWS
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import (
    last_word,
    method_of,
    named_arguments,
    receiver_of,
    root_of,
    word_of,
)
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues, ValueAnalysis
from torchlint.semantic.values.losses import SENDING

LoopNode = cst.For | cst.While


class Role(Enum):
    """What one pass of a loop handles."""

    EPOCH = auto()
    TRAIN_BATCH = auto()
    EVAL_BATCH = auto()
    OTHER = auto()


_BATCHES: Final = (Role.TRAIN_BATCH, Role.EVAL_BATCH)


class Loop(NamedTuple):
    """A `for` or `while` statement; `loader` is the expression its batches come from."""

    node: LoopNode
    role: Role
    loader: cst.BaseExpression | None

    @property
    def is_batch(self) -> bool:
        """Whether one pass handles one batch."""
        return self.role in _BATCHES


def _names_phases(node: LoopNode) -> bool:
    """Return whether a loop iterates over strings (`for phase in ["train", "val"]`)."""
    return (
        isinstance(node, cst.For)
        and isinstance(node.iter, (cst.List, cst.Tuple))
        and all(isinstance(element.value, cst.SimpleString) for element in node.iter.elements)
    )


_HOLDERS: Final = frozenset({cst.For, cst.While, cst.FunctionDef, cst.ClassDef})
_FRAMES: Final = _HOLDERS | {cst.Lambda}
_ROUNDS: Final = frozenset("epoch epochs episode episodes ep trial game round".split())
_BATCH_MAKERS: Final = ("get_batch", "next_batch", "getbatch", "sample_batch", "random_batch")
_TELLING: Final = frozenset("update_grad need_update".split())
_STEPS: Final = (*SENDING, "step")
_PREDICTS: Final = "prediction_step"
"""The method of a trainer of Transformers that runs the network of its first argument."""
_STEPPERS: Final = frozenset("opt optim optimizer optimiser".split())


class Loops(ValueAnalysis):
    """Finds the loops of a file and their roles."""

    def __init__(self, values: KnownValues) -> None:
        super().__init__(values)
        self.environments = Environments(self.functions)
        self.measuring = Measuring(self.functions)
        self.feeding = Feeding(values, self._runs)
        self._trains: dict[tuple[LoopNode, bool], bool] = {}
        self._repeating: set[cst.FunctionDef] = set()

    def is_round(self, loop: Loop) -> bool:
        """Return whether each pass is an epoch: by its target, what it counts, or a short list."""
        if loop.loader is not None or not isinstance(loop.node, cst.For):
            return False
        target, drawn = loop.node.target, loop.node.iter
        if isinstance(drawn, cst.Call) and drawn.args:
            drawn = drawn.args[-1].value if word_of(drawn) == "range" else drawn.args[0].value
        if isinstance(drawn, (cst.List, cst.Tuple)):
            return True
        counted = words(last_word(drawn))
        if not _ROUNDS.isdisjoint(counted[-1:]) and "per" not in counted:
            return True
        return isinstance(target, cst.Name) and not _ROUNDS.isdisjoint(words(target.value))

    @memoized(False)
    def is_in_round(self, node: cst.CSTNode) -> bool:
        """Return whether a pass of every batch loop that runs a node, by calls too, is a round."""
        loop, function = self.batch_loop(node), self.scopes.function(node)
        if loop is not None:
            return self.is_round(loop)
        calls = self.functions.callers(function) if function is not None else ()
        return bool(calls) and all(map(self.is_in_round, calls))

    def all(self) -> list[Loop]:
        """Return every loop statement, in the order of the source."""
        return [self.loop(node) for node in self._nodes]

    @cached_property
    def _nodes(self) -> list[LoopNode]:
        nodes: list[LoopNode] = [*self.tree.all(cst.For), *self.tree.all(cst.While)]
        nodes.sort(key=self.tree.order)
        return nodes

    @cached_method
    def loop(self, node: LoopNode) -> Loop:
        """Return the role and the loader of a loop statement."""
        loader = self._loader(node)
        return Loop(node, self._role(node, loader), loader)

    def of(self, *roles: Role) -> list[Loop]:
        """Return the loops with one of these roles."""
        return [loop for loop in self.all() if loop.role in roles]

    def own(self, function: cst.FunctionDef) -> Iterator[Loop]:
        """Yield the loops of a function's own code."""
        nodes: list[LoopNode] = [*self.functions.own(function, cst.For)]
        return map(self.loop, [*nodes, *self.functions.own(function, cst.While)])

    def in_file(self, *roles: Role) -> list[Loop]:
        """Return the loops of the file itself with one of these roles."""
        own = map(self.loop, filter(self.tree.is_own, self._nodes))
        return [loop for loop in own if loop.role in roles]

    def batch_loop(self, node: cst.CSTNode) -> Loop | None:
        """Return the innermost batch loop of the same function around a node."""
        return next((loop for loop in self.around(node) if loop.is_batch), None)

    def around(self, node: cst.CSTNode) -> Iterator[Loop]:
        """Yield the loops of the same function whose body contains a node, innermost first."""
        return map(self.loop, self._around(node))

    @cached_method
    def _around(self, node: cst.CSTNode) -> tuple[LoopNode, ...]:
        outer = self.tree.nearest(node, _FRAMES)
        found: tuple[LoopNode, ...] = ()
        if type(outer) is cst.For or type(outer) is cst.While:
            found = self._around(outer)
            if self.tree.inside(node, outer.body):
                found = (outer, *found)
        return found

    def is_in_loop(self, node: cst.CSTNode, *roles: Role) -> bool:
        """Return whether code in view runs a node in a loop, of one of the given roles if any."""
        return self._is_in_loop((node, roles))

    @memoized(False)
    def _is_in_loop(self, place: tuple[cst.CSTNode, tuple[Role, ...]]) -> bool:
        node, roles = place
        if any(not roles or loop.role in roles for loop in self.around(node)):
            return True
        function = self.scopes.function(node)
        callers = self.functions.callers(function) if function is not None else ()
        return any(self._is_in_loop((call, roles)) for call in callers)

    @cached_method
    def innermost(self, node: cst.CSTNode) -> LoopNode | None:
        """Return the innermost loop of the same function or class around a node."""
        outer = self.tree.nearest(node, _HOLDERS)
        return outer if isinstance(outer, (cst.For, cst.While)) else None

    # -- loaders -----------------------------------------------

    def _loader(self, node: LoopNode) -> cst.BaseExpression | None:
        if isinstance(node, cst.For):
            found = self.kinds.loader(node.iter)
            if found is not None:
                return found
        for call in self._direct(node, cst.Call):
            if self.iteration.draws(call):
                found = self.kinds.loader(call)
                if found is not None:
                    return found
        return None

    def _direct(self, node: LoopNode, kind: type[cst.Call]) -> Iterator[cst.Call]:
        """Yield the calls directly in a loop's body, not in inner loops or functions."""
        for call in self.functions.own(node.body, kind):
            inner = self.innermost(call)
            if inner is node or (
                inner is not None
                and isinstance(inner, cst.For)
                and self.tree.inside(call, inner.iter)
                and self.tree.parent(self.tree.parent(inner)) is node
            ):
                yield call

    def draws_batch(self, node: LoopNode) -> bool:
        """Return whether each pass of the loop gets a batch by a call (`get_batch("train")`)."""
        words = (word_of(call).lower() for call in self._direct(node, cst.Call))
        return any(maker in word for word in words for maker in _BATCH_MAKERS)

    def is_repeated(self, function: cst.FunctionDef) -> bool:
        """Return whether loops call a function repeatedly, or its names mention an epoch."""
        if function in self._repeating:
            return False
        callers = self.functions.callers(function)
        if not callers:
            named = [function.name.value, *(p.name.value for p in function.params.params)]
            return any("epoch" in words(name) for name in named)
        self._repeating.add(function)
        try:
            return all(self._is_repeated_call(call) for call in callers)
        finally:
            self._repeating.discard(function)

    def _is_repeated_call(self, call: cst.Call) -> bool:
        if any(not self.runs_once(loop.node) for loop in self.around(call)):
            return True
        home = self.scopes.function(call)
        return home is not None and self.is_repeated(home)

    def runs_once(self, node: LoopNode) -> bool:
        """Return whether a loop certainly has one pass: `for epoch in range(1)`."""
        counted = node.iter if isinstance(node, cst.For) else None
        if not isinstance(counted, cst.Call) or len(counted.args) != 1:
            return False
        named = self.names.name(counted.func) == "builtins.range"
        return named and self.values.value_of(counted.args[0].value).equals(1)

    # -- roles ----------------------------------------------------------------

    def _role(self, node: LoopNode, loader: cst.BaseExpression | None) -> Role:
        if self.trains(node, direct=True) and not self._finishes(node):
            return Role.TRAIN_BATCH
        if loader is not None and self._any_steps and not self._only_evaluates(node):
            if self._updates(node.body, node, set(), CALLED):
                return Role.TRAIN_BATCH
        if self.trains(node, direct=False):
            # The backward pass is in an inner loop, or in a function with a loop of its own.
            return Role.OTHER if _names_phases(node) else Role.EPOCH
        if loader is not None or self.draws_batch(node) or self._measures(node):
            measures = self.runs_module(node.body) and not self._runs_batch_loop(node)
            return Role.EVAL_BATCH if measures else Role.OTHER
        return Role.OTHER

    def _runs_batch_loop(self, node: LoopNode) -> bool:
        """Return whether a pass runs its network only in batch loops of functions it calls."""
        if self.runs_module_itself(node.body):
            return False
        return any(
            self._loader(inner) is not None and self.runs_module(inner.body)
            for body in self.functions.reached(node.body)[1:]
            for inner in self.tree.within(body, cst.For)
        )

    def _measures(self, node: LoopNode) -> bool:
        """Return whether a loop without a loader, in no loader loop, evaluates a network."""
        return (
            isinstance(node, cst.For)
            and not self._in_loader_loop(node, None)
            and self.feeding.measures(node)
        )

    def trains(self, node: LoopNode, direct: bool) -> bool:
        """Return whether passes of the loop step an optimizer or run a backward pass.

        `direct` ignores inner loops, also those in functions that the loop calls.
        """
        if not self._any_steps:
            return False
        key = (node, direct)
        found = self._trains.get(key)
        if found is None:
            self._trains[key] = False
            found = self._region_trains(node.body, node, direct, set(), CALLED)
            found = self._trains[key] = found and not self._only_evaluates(node)
        return found

    def _only_evaluates(self, node: LoopNode) -> bool:
        """Return whether a loop without gradients calls what trains elsewhere.

        Such a function asks whether it trains.
        """
        return self.gradients.grad(node) is Grad.OFF and not any(
            map(self.is_step, self.functions.own(node.body, cst.Call))
        )

    def makes_step(self, region: cst.CSTNode) -> bool:
        """Return whether code calls a function that makes one training step."""
        return self._any_steps and any(
            self._region_trains(callee.body, None, True, {callee}, CALLED)
            for call in self.functions.own(region, cst.Call)
            if (callee := self.functions.callee(call)) is not None
        )

    def _region_trains(
        self,
        region: cst.CSTNode,
        loop: LoopNode | None,
        direct: bool,
        seen: set[cst.FunctionDef],
        depth: int,
    ) -> bool:
        for call in self.functions.own(region, cst.Call):
            if direct and self._in_inner_loop(call, loop):
                continue
            if self.is_step(call):
                return True
            for callee in self.functions.callees(call) if depth else ():
                if callee in seen or self.gradients.grad(call) is Grad.OFF:
                    continue
                seen.add(callee)
                if self._region_trains(callee.body, None, direct, seen, depth - 1):
                    return True
        return False

    @cached_property
    def _any_steps(self) -> bool:
        """Whether any call of the file may run a backward pass or step an optimizer."""
        return bool(self._told_to_step) or any(map(self.functions.attributes, _STEPS))

    @cached_property
    def _told_to_step(self) -> frozenset[cst.Call]:
        """The helper calls that run backward and step (`loss_scaler(…, update_grad=…)`)."""
        return frozenset(
            call
            for call in self.tree.all(cst.Call)
            if named_arguments(call, *_TELLING) or self._gets_loss_and_optimizer(call)
        )

    def _gets_loss_and_optimizer(self, call: cst.Call) -> bool:
        """Return whether a helper out of view gets a loss and an optimizer: timm's scaler."""
        given = [arg.value for arg in call.args[:2] if arg.keyword is None]
        if type(call.func) is not cst.Name or len(given) < 2:
            return False
        loss, optimizer = given
        return (
            type(optimizer) in (cst.Name, cst.Attribute)
            and self.kinds.kind(optimizer) is Kind.OPTIMIZER
            and self.kinds.kind(loss) is Kind.LOSS
            and not self.functions.callees(call)
        )

    def _finishes(self, node: LoopNode) -> bool:
        """Return whether a pass only makes the final step for gradients left by an inner loop."""
        steps = [call for call in self.functions.own(node.body, cst.Call) if self.is_step(call)]
        own = [call for call in steps if not self._in_inner_loop(call, node)]
        if not own or not all(method_of(call) == "step" for call in own):
            return False
        return any(
            {method_of(call) == "step" for call in steps if self.tree.inside(call, inner)}
            == {True, False}
            for kind in (cst.For, cst.While)
            for inner in self.functions.own(node.body, kind)
        )

    def _in_inner_loop(self, call: cst.Call, loop: LoopNode | None) -> bool:
        inner = self.innermost(call)
        if isinstance(inner, cst.For) and self._draws_stepper(inner, call):
            if inner is loop:
                return True
            inner = self.innermost(inner)
        return inner is not None and inner is not loop

    def _draws_stepper(self, inner: cst.For, call: cst.Call) -> bool:
        """Return whether a loop only goes through what steps: `for one in optimizers: one.step()`.

        The step is then one of the loop around it, or around a call of its function.
        """
        stepper, function = root_of(call.func), self.scopes.function(inner)
        calls = self.functions.callers(function) if function is not None else ()
        return (
            isinstance(stepper, cst.Name)
            and stepper.value in {each.value for each in self.tree.within(inner.target, cst.Name)}
            and self.kinds.loader(inner.iter) is None
            and any(map(self._around, (inner, *calls)))
        )

    def _updates(
        self, region: cst.CSTNode, loop: LoopNode | None, seen: set[cst.FunctionDef], depth: int
    ) -> bool:
        """Return whether code steps an optimizer created earlier, outside inner loader loops.

        An attack on a network steps an optimizer of its own, or none.
        """
        for call in self.functions.own(region, cst.Call):
            if self._in_loader_loop(call, loop):
                continue
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == "step" and self.is_step(call):
                if not self._made_in(func.value, region):
                    return True
            for callee in self.functions.callees(call) if depth else ():
                if callee in seen:
                    continue
                seen.add(callee)
                if self._updates(callee.body, None, seen, depth - 1):
                    return True
        return False

    def _made_in(self, node: cst.BaseExpression, region: cst.CSTNode) -> bool:
        return isinstance(node, cst.Name) and any(
            self.tree.inside(binding.node, region) for binding in self.scopes.reaching(node)
        )

    def _in_loader_loop(self, node: cst.CSTNode, loop: LoopNode | None) -> bool:
        for outer in self.tree.ancestors(node):
            if outer is loop or isinstance(outer, (cst.FunctionDef, cst.ClassDef)):
                return False
            if isinstance(outer, (cst.For, cst.While)) and self._loader(outer) is not None:
                return True
        return False

    @cached_method
    def is_step(self, call: cst.Call) -> bool:
        """Return whether a call runs a backward pass or steps an optimizer."""
        func = call.func
        if call in self._told_to_step:
            return True
        if not isinstance(func, cst.Attribute):
            return False
        method = func.attr.value
        if method in SENDING:
            return (
                self.names.name(func) is None or self.names.name(func) == "torch.autograd.backward"
            )
        if method != "step":
            return False
        kind = self.kinds.kind(func.value)
        if kind in (Kind.OPTIMIZER, Kind.SCALER):
            # annotations call schedulers optimizers
            return not dotted(func.value).endswith("scheduler")
        last = func.value
        name = last.value if isinstance(last, cst.Name) else ""
        return kind is Kind.UNKNOWN and name.lower() in _STEPPERS and len(call.args) < 2

    def stepped(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the optimizer that a `step` call steps, also through a gradient scaler."""
        if not isinstance(call.func, cst.Attribute):
            return None
        if self.kinds.kind(call.func.value) is Kind.SCALER:
            return call.args[0].value if call.args else None
        return call.func.value

    def is_update(self, call: cst.Call) -> bool:
        """Return whether a call steps an optimizer."""
        return method_of(call) == "step" and self.is_step(call)

    def goes_backward(self, call: cst.Call) -> bool:
        """Return whether a call runs a backward pass."""
        return method_of(call) in SENDING and self.is_step(call)

    @memoized(False)
    def runs_module(self, region: cst.CSTNode) -> bool:
        """Return whether code calls a network, directly or through functions of this file."""
        return any(map(self.runs_module_itself, self.functions.reached(region)))

    @memoized(False)
    def runs_module_itself(self, region: cst.CSTNode) -> bool:
        """Return whether code calls a network directly, not through functions of this file."""
        calls = self.functions.own(region, cst.Call)
        return any(self.module_call(call) is not None for call in calls)

    def _runs(self, call: cst.Call) -> bool:
        """Return whether a call runs a network, directly or through functions of this file."""
        callees = self.functions.callees(call)
        if callees:
            return any(self.runs_module(each.body) for each in callees)
        return self.module_call(call) is not None

    @memoized(None)
    def module_call(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the network that a call runs, None if it runs none."""
        func = call.func
        # A tokenizer is asked for tensors, whatever type it is declared to have.
        if self.has_other_arrays(call) or named_arguments(call, "return_tensors"):
            return None
        if isinstance(func, cst.Attribute) and self._names_pass(func):
            if self.kinds.kind(func.value) is Kind.MODULE:
                return func.value
        if isinstance(func, cst.Attribute) and func.attr.value == _PREDICTS and len(call.args) > 1:
            return call.args[0].value
        found = self.kinds.kind(func)
        if found is Kind.MODULE and self.functions.definition(func) is None:
            return (isinstance(func, cst.Name) and self._run_by_criterion(call)) or func
        return self._run_by_criterion(call) if found is Kind.CRITERION else None

    def _names_pass(self, func: cst.Attribute) -> bool:
        """Return whether a method is a forward pass, by its name if it is not in view."""
        word = func.attr.value
        if word in ("forward", "module"):
            return True
        return word.endswith("_forward") and self.functions.definition(func) is None

    def has_other_arrays(self, call: cst.Call) -> bool:
        """Return whether a call stands in code that computes with arrays of another library."""
        return self._is_of_other_library(self.scopes.home(call))

    @memoized(False)
    def _is_of_other_library(self, home: cst.CSTNode) -> bool:
        """Return whether a function computes with another library's arrays, and without torch."""
        names = {self.names.name(call.func) or "" for call in self.functions.own(home, cst.Call)}
        other = any(name.startswith(OTHER_ARRAYS) for name in names)
        return other and not any(name.startswith("torch.") for name in names)

    def _run_by_criterion(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the network that a criterion is given to run: `criterion(batch, net)`."""
        callee = self.functions.callee(call)
        if len(call.args) != 2 or (callee is not None and not self.runs_module(callee.body)):
            return None
        given = [arg.value for arg in call.args]
        networks = [each for each in given if self.kinds.kind(each) is Kind.MODULE]
        return networks[0] if len(networks) == 1 and not any(map(self.is_output, given)) else None

    def has_update(self, code: Iterable[cst.CSTNode]) -> bool:
        """Return whether code makes an optimizer step, for which passes are only gathered."""
        return any(
            self.makes_step(line) or any(map(self.is_update, self.tree.within(line, cst.Call)))
            for line in code
        )

    @memoized(False)
    def is_output(self, value: cst.BaseExpression) -> bool:
        """Return whether a value is what a network gave, a part of it or a view of it."""
        if isinstance(value, cst.Call):
            viewed = receiver_of(value) if method_of(value) in VIEWS else None
            return self.module_call(value) is not None or (
                viewed is not None and self.is_output(viewed)
            )
        if isinstance(value, (cst.Subscript, cst.Attribute)) and self.is_output(value.value):
            return True
        made = (each.value for each in self.scopes.reaching(value))
        return any(each is not None and self.is_output(each) for each in made)
