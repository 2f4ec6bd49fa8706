"""Evaluations: the places where a script runs networks to evaluate them, not to train."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loop, LoopNode, Loops, Role
from torchlint.semantic.loops.modes import Mode, Modes
from torchlint.semantic.scope.limits import CALLED
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.scope.words import says_evaluation, says_training, words
from torchlint.semantic.syntax.methods import last_word, method_of, named_arguments
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind, derived
from torchlint.semantic.values.unread import Unread


class Forward(NamedTuple):
    """A call that runs a network; `records` says whether autograd records it."""

    call: cst.Call
    network: cst.BaseExpression
    records: Grad


class Evaluation(NamedTuple):
    """Code that evaluates networks: a loop over batches, or a function on all data at once."""

    node: LoopNode | cst.FunctionDef
    function: cst.FunctionDef | None
    loader: cst.BaseExpression | None
    forwards: tuple[Forward, ...]
    by_function: bool
    """Whether the name of the function says so."""
    by_loader: bool
    """Whether the name of the loader says so, or a line before it that only names `eval`.

    Where no name does, a call of `eval()` does.
    """

    @property
    def by_name(self) -> bool:
        """Whether a name says that this is an evaluation."""
        return self.by_function or self.by_loader

    @property
    def start(self) -> LoopNode | cst.Call:
        """The loop, or the first forward pass of a function without one."""
        return self.forwards[0].call if isinstance(self.node, cst.FunctionDef) else self.node

    @property
    def body(self) -> cst.BaseSuite:
        """The code that runs in it."""
        return self.node.body

    @property
    def networks(self) -> list[cst.BaseExpression]:
        """The networks that it runs, each once."""
        return list({dotted(each.network): each.network for each in self.forwards}.values())


_UPDATES: Final = ("step", "zero_grad")
_OWNERS: Final = ("lightning", "pytorch_lightning", "transformers", "fastai", "LightningModule")
_DIFFERENTIATES: Final = (
    "torch.autograd.grad", "torch.autograd.functional", "torch.autograd.backward", "torch.func.",
    "functorch.", "torch.enable_grad", "torch.is_grad_enabled", "torch.set_grad_enabled",
    "captum.", "torchattacks.", "foolbox.", "autoattack.", "torch.jit.trace", "torch.onnx.",
)  # fmt: skip
_GRADIENTS: Final = frozenset(
    "requires_grad_ retain_grad grad backward register_hook attribute perturb".split()
)
_DERIVES: Final = frozenset(
    "attack attacks attacker fgsm pgd saliency gradcam adversarial adversary adv adversaries "
    "deepfool cw autoattack perturbation jacobian hessian hvp gradient gradients grads "
    "influence attribution maml fomaml reptile shot".split()
)
_TRAINING: Final = frozenset("accumulation accumulate accum checkpointing clip clipping".split())
"""Words beside `gradient` that name an option of the training, which derives nothing here."""
_OPEN: Final = ("builtins.", "abc.", "torch.", "typing.")
"""Prefixes of base classes that call no methods by themselves, or only known ones."""
_TESTS: Final = ("pytest", "unittest")


class Evaluations(LoopAnalysis):
    """Finds the evaluations of a file."""

    def __init__(self, loops: Loops, modes: Modes) -> None:
        super().__init__(loops)
        self.modes = modes
        self.unread = Unread(loops.functions)

    @cached_property
    def all(self) -> tuple[Evaluation, ...]:
        """Every evaluation, in source order; none is inside another."""
        loops = [each for loop in self.loops.all() if (each := self._of_loop(loop)) is not None]
        inner = list(self._outermost(loops))
        covered = {
            id(body)
            for each in inner
            for body in (self.scopes.home(each.node), *self.functions.reached(each.body))
        }
        whole = [
            each
            for function in self.tree.all(cst.FunctionDef)
            if id(function) not in covered
            and (each := self._of_function(function, covered)) is not None
        ]
        found = (
            each
            for each in (*inner, *whole)
            if not self.functions.imports_beside(each.node, *_TESTS)
        )
        return tuple(sorted(found, key=lambda each: self.tree.order(each.node)))

    @cached_property
    def in_file(self) -> tuple[Evaluation, ...]:
        """Every evaluation that stands in the file itself, in source order."""
        loops = map(self._of_loop, self.loops.in_file(*Role))
        functions = (self._of_function(each, set()) for each in self.tree.own(cst.FunctionDef))
        if not any(loops) and not any(functions):
            return ()
        return tuple(self.tree.in_file(self.all))

    def _outermost(self, loops: list[Evaluation]) -> Iterator[Evaluation]:
        """Yield the outermost of some loops, in source order."""
        end = 0
        for each in loops:
            if self.tree.order(each.node) >= end:
                end = self.tree.end(each.node)
                yield each

    # -- loops --------------------------------------------------------------------

    def _of_loop(self, loop: Loop) -> Evaluation | None:
        node = loop.node
        if loop.role not in (Role.EVAL_BATCH, Role.OTHER) or self._is_owned(node):
            return None
        batches = loop.role is Role.EVAL_BATCH
        if not batches and (isinstance(node, cst.While) or self._holds_batches(node)):
            return None
        function = self.scopes.function(node)
        if function is not None and (
            self._is_unit_test(function, loop.loader)
            or self._is_part_of_step(function)
            or (loop.loader is None and self._gets_one_batch(function))
        ):
            return None
        text = self.tree.code(loop.loader) if loop.loader is not None else ""
        by_function = self._is_named(function)
        named = says_evaluation(text) and not says_training(text)
        by_loader = named or self._follows_uncalled(node)
        named = by_function or by_loader
        switched = named or self._in_eval(node) or self._stays_in_eval(loop)
        handed = loop.loader is not None and self.modes.are_switched
        if not (switched or handed) or self._is_method_of_network(function):
            return None
        if self.loops.trains(node, direct=False) or not self.measures(node.body):
            return None
        forwards = tuple(self._forwards(node.body))
        if not forwards or not (switched or self._run_in_eval(forwards)):
            return None
        return Evaluation(node, function, loop.loader, forwards, by_function, by_loader)

    def _follows_uncalled(self, node: cst.CSTNode) -> bool:
        """Return whether a line before a loop only names `eval` of something."""
        lines = self.functions.uncalled("eval", node)
        return any(self.tree.order(each) < self.tree.order(node) for each in lines)

    def _holds_batches(self, node: cst.For) -> bool:
        """Return whether a loop contains a loop over batches, which is considered instead."""
        return any(
            self.loops.loop(inner).role is Role.EVAL_BATCH
            for inner in self.tree.within(node.body, cst.For)
        )

    def _is_named(self, function: cst.FunctionDef | None) -> bool:
        """Return whether the name of a function, or else that of its class, says evaluation."""
        if function is None or says_training(function.name.value):
            return False
        owner = self.scopes.class_of(function)
        named = owner.name.value if owner is not None else ""
        by_class = says_evaluation(named) and not says_training(named)
        return by_class or says_evaluation(function.name.value)

    def _is_unit_test(self, function: cst.FunctionDef, loader: cst.BaseExpression | None) -> bool:
        """Return whether a function is only called by a test runner."""
        if not function.name.value.startswith("test_") or self.functions.callers(function):
            return False
        return not any(each.how is How.PARAMETER for each in self.scopes.reaching(loader))

    def _is_part_of_step(self, function: cst.FunctionDef) -> bool:
        """Return whether each pass of a training loop defines a function of its own."""
        return any(
            isinstance(outer, (cst.For, cst.While))
            and any(map(self.loops.is_step, self.tree.within(outer.body, cst.Call)))
            for outer in self.tree.ancestors(function)
        )

    def _gets_one_batch(self, function: cst.FunctionDef) -> bool:
        """Return whether code out of view runs a method on each batch, in a mode that it sets."""
        owner = self.scopes.class_of(function)
        callers = self.functions.callers(function)
        return (
            owner is not None
            and any(param.name.value == "batch" for param in function.params.params)
            and all(self.scopes.class_of(call) is owner for call in callers)
        )

    def _in_eval(self, place: cst.CSTNode) -> bool:
        """Return whether the last mode change in the same function is `eval()`."""
        if not self.modes.are_switched:
            return False
        last = self.modes.last_switch(place, None)
        return last is not None and last.mode is Mode.EVAL and last.network is not None

    def _run_in_eval(self, forwards: Iterable[Forward]) -> bool:
        """Return whether code elsewhere put all networks that a loop runs into evaluation mode."""
        modes = (self.modes.mode(each.call, each.network) for each in forwards)
        return all(mode is Mode.EVAL for mode in modes)

    def _stays_in_eval(self, loop: Loop) -> bool:
        """Return whether the passes over a loader call `eval()` and set no other mode."""
        calls = self.functions.own(loop.node.body, cst.Call)
        switches = [switch for call in calls if (switch := self.modes.switch(call)) is not None]
        return (
            loop.loader is not None
            and bool(switches)
            and all(
                each.mode is Mode.EVAL
                and each.network is not None
                and isinstance(self.tree.parent(each.call), cst.Expr)
                for each in switches
            )
        )

    # -- functions without a loop -----------------------------------------------------

    def _of_function(self, function: cst.FunctionDef, covered: set[int]) -> Evaluation | None:
        switches = self.modes.switches(function) if self.modes.are_switched else ()
        if not any(each.mode is Mode.EVAL and each.network is not None for each in switches):
            return None
        callers = self.functions.callers(function)
        if not callers or any(id(self.scopes.home(call)) in covered for call in callers):
            return None
        if self._is_owned(function) or self._is_method_of_network(function):
            return None
        if not self.only_measures(function.body):
            return None
        forwards = tuple(self._forwards(function.body, 0))
        if not forwards or not self._in_eval(forwards[0].call):
            return None
        return Evaluation(function, function, None, forwards, self._is_named(function), False)

    # -- forward passes --------------------------------------------------------------------

    def only_measures(self, region: cst.CSTNode) -> bool:
        """Return whether nothing in a region trains."""
        return self.measures(region) and not any(
            self.loops.is_step(call) for call in self.functions.run_in(region)
        )

    def measures(self, region: cst.CSTNode) -> bool:
        """Return whether a region steps nothing, no environment either, and uses no optimizer."""
        updates = any(method_of(call) in _UPDATES for call in self.functions.run_in(region))
        return not updates and not any(
            self.kinds.kind(name) is Kind.OPTIMIZER
            for name in self.tree.within(region, cst.Name)
            if self.scopes.reads(name)
        )

    def _forwards(self, region: cst.CSTNode, depth: int = CALLED) -> Iterator[Forward]:
        """Yield the network calls in a region and in the plain functions it calls."""
        for call in self.functions.own(region, cst.Call):
            network = self.loops.module_call(call) or self._switched(call)
            if network is not None:
                owner = self.functions.instance_of(network)
                run = self.functions.method(owner, "forward") if owner is not None else None
                own = self.gradients.grad(call)
                yield Forward(call, network, own if run is None else self._of_method(call, run))
                continue
            callee = self.functions.callee(call)
            if callee is None or not self.loops.runs_module(callee):
                continue
            if self._is_method_of_network(callee):
                if isinstance(call.func, cst.Attribute):
                    yield Forward(call, call.func.value, self._of_method(call, callee))
            elif depth:
                yield from self._forwards(callee.body, depth - 1)

    def _switched(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the called object if an object of that name is put into evaluation mode."""
        name = dotted(call.func)
        if name not in self._names_in_eval or self.functions.definition(call.func) is not None:
            return None
        return None if self.loops.has_other_arrays(call) else call.func

    @cached_property
    def _names_in_eval(self) -> frozenset[str]:
        return frozenset(
            dotted(switch.network)
            for call in self.tree.all(cst.Call)
            if (switch := self.modes.switch(call)) is not None
            and switch.mode is Mode.EVAL
            and switch.network is not None
        ) - {""}

    def _of_method(self, call: cst.Call, callee: cst.FunctionDef) -> Grad:
        """Return whether autograd records in a network's method that a call runs."""
        return Grad.OFF if self._modes_in(callee) == {Grad.OFF} else self.gradients.grad(call)

    @memoized(frozenset())
    def _modes_in(self, method: cst.FunctionDef) -> frozenset[Grad]:
        """Return the modes in which a method runs networks, nothing where it runs itself."""
        return frozenset(each.records for each in self._forwards(method.body, 0))

    def _is_method_of_network(self, function: cst.FunctionDef | None) -> bool:
        owner = self.scopes.class_of(function) if function is not None else None
        if function is None or owner is None:
            return False
        around = (function, *self.tree.ancestors(function))
        if any(
            isinstance(each, cst.FunctionDef) and each.name.value == "forward" for each in around
        ):
            return True
        names = (each.name.value for each in self._methods(owner))
        return derived(self.functions.bases(owner)) is Kind.MODULE or (
            self._has_hidden_base(owner)
            and any(each == "__call__" or each.startswith("forward") for each in names)
        )

    def _has_hidden_base(self, owner: cst.ClassDef) -> bool:
        """Return whether a class has an unseen base, which may call its methods."""
        names = (self.names.name(base) or "" for base in self.functions.outer_bases(owner))
        return not all(each.startswith(_OPEN) for each in names)

    def _methods(self, owner: cst.ClassDef) -> Iterator[cst.FunctionDef]:
        for line in self.functions.lineage(owner):
            for bindings in self.scopes.scope_at(line).bindings.values():
                for binding in bindings:
                    if isinstance(binding.node, cst.FunctionDef):
                        yield binding.node

    def _is_owned(self, node: cst.CSTNode) -> bool:
        """Return whether a framework calls the method that contains a node, and sets the mode."""
        owner = self.scopes.class_of(node)
        return owner is not None and any(
            base.partition(".")[0] in _OWNERS or base.rpartition(".")[2] in _OWNERS
            for base in self.functions.bases(owner)
        )

    def contains_word(self, evaluation: Evaluation, wanted: frozenset[str]) -> bool:
        """Return whether an evaluation, or its function's name, contains one of some words."""
        names = [name.value for name in self.tree.within(evaluation.node, cst.Name)]
        names += [at.attr.value for at in self.tree.within(evaluation.node, cst.Attribute)]
        if evaluation.function is not None:
            names.append(evaluation.function.name.value)
        return any(wanted.intersection(words(name)) for name in names)

    def needs_gradients(self, region: cst.CSTNode) -> bool:
        """Return whether a region, or code that it runs, asks for gradients (saliency, physics)."""
        for body in self.functions.reached(region):
            for call in self.functions.own(body, cst.Call):
                name = self.names.name(call.func) or ""
                if name.startswith(_DIFFERENTIATES) or self._asks_for_gradients(call):
                    return True
            mentions = [name.value for name in self.functions.own(body, cst.Name)]
            parts = list(self.functions.own(body, cst.Attribute))
            attributes = [at.attr.value for at in parts]
            if not _GRADIENTS.isdisjoint(attributes) or any(map(self._turns_on, parts)):
                return True
            spoken = map(frozenset, map(words, {*mentions, *attributes}))
            if any(each & _DERIVES and not each & _TRAINING for each in spoken):
                return True
            if not all(map(self._is_text, self.functions.own(body, cst.Yield))):
                return True
        return False

    def _is_text(self, given: cst.Yield) -> bool:
        """Return whether a generator yields text, which carries no graph."""
        value = given.value
        if method_of(value) == "encode":
            return True
        return isinstance(value, cst.BaseExpression) and self.kinds.kind(value) is Kind.STRING

    def _turns_on(self, part: cst.Attribute) -> bool:
        """Return whether `requires_grad` of something is set, to anything but `False`."""
        set_here = self.scopes.stored(part) if part.attr.value == "requires_grad" else None
        return (
            set_here is not None
            and self.scopes.reads(part) is False
            and last_word(set_here.value) != "False"
        )

    def _asks_for_gradients(self, call: cst.Call) -> bool:
        told = named_arguments(call, "requires_grad", "create_graph", "retain_graph")
        return any(last_word(each) != "False" for each in told)
