"""Intent: whether the code in view trains, or applies networks that are trained already."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.loops import Loops, Role
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import last_line, method_of, receiver_of, word_of
from torchlint.semantic.training.optimizers import Unstepped
from torchlint.semantic.values.kind import Kind

_TRAINING: Final = frozenset("manual_backward training_step zero_grad".split())
"""Methods that only training code calls, or a framework in its place."""
_ORDERS: Final = frozenset({"train", "fit", "finetune"})
"""First words of what orders a training: `train_epoch`, `fit_one_cycle`."""
_ELSE: Final = frozenset("fit_transform fit_predict train_test_split".split())
_STARTS: Final = frozenset("run start launch learn main execute loop step update".split())
"""Methods that start a training, if they are those of a trainer."""
_BACKWARD: Final = "backward"
_STEP: Final = "step"
_ATTRIBUTING: Final = frozenset(
    "requires_grad_ retain_grad register_hook register_full_backward_hook".split()
)
"""Methods by which a backward pass tells what an input or a layer contributes."""
_UPDATERS: Final = (Kind.OPTIMIZER, Kind.SCHEDULER, Kind.SCALER)
_LOADING: Final = frozenset({"load", "restore", "pretrained"})
_WEIGHTS: Final = frozenset(
    "model net network checkpoint ckpt weights weight state pretrained".split()
)
_SERVERS: Final = ("fastapi", "uvicorn", "flask", "starlette", "aiohttp.web", "grpc", "tornado")
_FUNCTION: Final = (cst.FunctionDef,)
_FIGURES: Final = ("matplotlib.", "seaborn.", "plotly.")


class Intent(LoopAnalysis):
    """Tells what the code does: that of the file, of what uses it, and of what they may run.

    With `alone`, what uses the file does not count. What runs at import does, though it may be
    another section: `running` is its intent.
    """

    def __init__(self, loops: Loops, running: Intent | None, *, alone: bool = False) -> None:
        super().__init__(loops)
        self.running = running
        self.alone = alone
        self._unstepped = Unstepped(loops.values)

    @cached_property
    def trains(self) -> bool:
        """Whether anything that may run trains, or hands a network to what does."""
        if self.running is not None and self.running.trains:
            return True
        if self._only_tries:
            return False
        calls = [call for call in self._calls if not self._is_another(call)]
        called = set(map(word_of, calls))
        if not called.isdisjoint(_TRAINING) or {_BACKWARD, _STEP} <= called:
            return True
        if _BACKWARD in called and called.isdisjoint(_ATTRIBUTING):
            return True
        if any(map(self.has_trained, calls)) or any(map(self._descends, self._updates)):
            return True
        return any(
            loop.role in (Role.TRAIN_BATCH, Role.EPOCH) and _STEP in called
            for loop in self.loops.all()
            if self._may_run(loop.node)
        )

    def has_trained(self, call: cst.Call) -> bool:
        """Return whether a call orders a training, by its name or by what it makes or starts."""
        return not _ORDERS.isdisjoint(words(word_of(call))[:1]) or self._hands_over(call)

    def starts_training(self, call: cst.Call) -> bool:
        """Return whether a call orders a training by its name, or is one that starts a trainer."""
        ordered = not _ORDERS.isdisjoint(words(word_of(call))[:1])
        return (ordered and not self._is_another(call)) or self._starts_trainer(call)

    @property
    def _only_tries(self) -> bool:
        """Whether every backward pass stands in a loop at the top of a script that ends at once."""
        steps = [call for call in self._calls if word_of(call) == _BACKWARD]
        return bool(steps) and all(map(self._is_tried, steps))

    def _is_tried(self, call: cst.Call) -> bool:
        if self.scopes.function(call) is not None:
            return False
        around = list(self.loops.around(call))
        last = last_line(around[0].node.body) if len(around) == 1 else None
        return isinstance(last, cst.Break)

    def _is_another(self, call: cst.Call) -> bool:
        """Return whether a call sets a mode, or fits what is no network of torch."""
        receiver = receiver_of(call, "train", "fit")
        if receiver is None:
            return word_of(call) in _ELSE
        if method_of(call) == "train":
            return self.tree.code(receiver) in self._evaluated
        values = [binding.value for binding in self.scopes.reaching(receiver)]
        return bool(values) and all(
            isinstance(each, cst.Call) and (self.names.name(each.func) or "").startswith("sklearn.")
            for each in values
        )

    @cached_property
    def _evaluated(self) -> frozenset[str]:
        """What `eval` is called on, as it is spelled: networks, whose `train` sets a mode."""
        found = (receiver_of(call, "eval") for call in self._calls)
        return frozenset(self.tree.code(each) for each in found if each is not None)

    @cached_property
    def applies(self) -> bool:
        """Whether anything in view makes a loader, or runs a network in a loop."""
        if self.running is not None and self.running.applies:
            return True
        loaders = any(self.kinds.kind(call) is Kind.LOADER for call in self.tree.all(cst.Call))
        return loaders or any(self.loops.runs_module(loop.node.body) for loop in self.loops.all())

    @cached_property
    def serves(self) -> bool:
        """Whether the file answers requests, again and again for as long as it runs."""
        return self.functions.imports(*_SERVERS)

    @cached_property
    def only_applies(self) -> bool:
        """Whether what may run shows or applies what was trained, and trains nothing."""
        return (self.loads_weights or self.draws) and not self.trains

    @cached_property
    def loads_weights(self) -> bool:
        """Whether anything that may run loads the weights of an earlier training."""
        at_import = self.running is not None and self.running.loads_weights
        return at_import or any(map(self._loads, self._calls))

    @cached_property
    def draws(self) -> bool:
        """Whether anything that may run draws a figure."""
        at_import = self.running is not None and self.running.draws
        return at_import or any(map(self.is_figure, self._calls))

    def is_figure(self, call: cst.Call) -> bool:
        """Return whether a call is one of a library that draws figures."""
        return (self.names.name(call.func) or "").startswith(_FIGURES)

    def _loads(self, call: cst.Call) -> bool:
        spelled = words(word_of(call))
        if self.names.name(call.func) == "torch.load":
            line = self.tree.code(self.tree.smallest_statement(call))
            spelled = words(line.replace("weights_only", ""))
        return not _LOADING.isdisjoint(spelled) and not _WEIGHTS.isdisjoint(spelled)

    def _hands_over(self, call: cst.Call) -> bool:
        """Return whether a call makes an optimizer that may step, or starts a trainer."""
        if self.tree.is_own(call) and (
            word_of(call).startswith("optim") or self.kinds.kind(call) in _UPDATERS
        ):
            return not self._unstepped.is_made_by(call)
        return self._starts_trainer(call)

    def _starts_trainer(self, call: cst.Call) -> bool:
        return word_of(call) in _STARTS and self._names_trainer(call)

    def _names_trainer(self, call: cst.Call) -> bool:
        """Return whether a call is one of a trainer, or gets one."""
        if "trainer" in words(self.tree.code(call)):
            return True
        receiver = receiver_of(call)
        made = self.origins.of(receiver).values if receiver is not None else ()
        return any(
            isinstance(each, cst.Call) and word_of(each).endswith("Trainer") for each in made
        )

    @cached_property
    def _updates(self) -> list[cst.AugAssign]:
        return [line for line in self.tree.all(cst.AugAssign) if self._may_run(line)]

    def _descends(self, line: cst.AugAssign) -> bool:
        """Return whether a line moves a value along its gradient: `w -= rate * w.grad`."""
        return any(each.attr.value == "grad" for each in self.tree.within(line, cst.Attribute))

    @cached_property
    def _calls(self) -> list[cst.Call]:
        return [call for call in self.tree.all(cst.Call) if self._may_run(call)]

    def _may_run(self, node: cst.CSTNode) -> bool:
        """Return whether code is the file's, or not in a definition that nothing here names."""
        if self.tree.is_own(node):
            return True
        inner = self.tree.nearest(node, _FUNCTION)
        return not self.alone if inner is None else inner not in self._unnamed

    @cached_property
    def _unnamed(self) -> frozenset[cst.CSTNode]:
        """The functions of other modules that cannot run, with the functions inside them."""
        return frozenset(
            inner
            for outer in self._never_named()
            for inner in (outer, *self.tree.within(outer, cst.FunctionDef))
        )

    def _never_named(self) -> Iterable[cst.FunctionDef]:
        """Return the functions of other modules that neither the file names nor what uses it."""
        waiting = {
            each
            for each in self.tree.all(cst.FunctionDef)
            if not self.tree.is_own(each) and self.tree.nearest(each, _FUNCTION) is None
        }
        spelled = set(self.tree.words(self.tree.module))
        functions = self.tree.all(cst.FunctionDef)
        own = {each.name.value for each in functions if self.tree.is_own(each)}
        for text in () if self.alone else self.tree.texts:
            for line in text.module.body:
                if not isinstance(line, (cst.FunctionDef, cst.ClassDef)):
                    spelled.update(self.tree.words(line))
        inside = {each: frozenset(self.tree.words(each)) for each in waiting}
        using = {
            each
            for each in waiting
            if not self.alone and (inside[each] & own or self._reads_own(each, inside[each]))
        }
        while True:
            named = {
                each for each in waiting if each in using or self._is_named(each, spelled, own)
            }
            if not named:
                return waiting
            waiting -= named
            for each in named:
                spelled |= inside[each]

    def _is_named(self, function: cst.FunctionDef, spelled: set[str], own: set[str]) -> bool:
        """Return whether code that runs may call a function."""
        name = function.name.value
        owner = self.scopes.class_of(function)
        if owner is not None and (name == "forward" or name.startswith("__")):
            name = owner.name.value
        return name in spelled and (owner is not None or name not in own)

    def _reads_own(self, function: cst.FunctionDef, spelled: frozenset[str]) -> bool:
        """Return whether a function, with these words, reads what the file makes: its loader."""
        return not self._linked.isdisjoint(spelled) and any(
            self.tree.is_own(binding.node)
            for name in self.tree.within(function, cst.Name)
            if name.value in self._linked and self.scopes.reads(name)
            for binding in self.scopes.reaching(name)
        )

    @cached_property
    def _linked(self) -> frozenset[str]:
        """The names that imports give to what other modules in view make."""
        return frozenset(word for scope in self.scopes.opened() for word in scope.unlinked)
