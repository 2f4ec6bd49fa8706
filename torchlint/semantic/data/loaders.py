"""Loaders: the DataLoader calls of a file, what they read, and the passes over them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.calls.hooks import Rate
from torchlint.semantic.calls.instances import PREPARING
from torchlint.semantic.data.datasets import Datasets, Trait, Traits
from torchlint.semantic.data.lightningloaders import TRAINER, LightningLoaders, takes_new_loaders
from torchlint.semantic.data.shortpasses import ShortPasses
from torchlint.semantic.data.tokenbatches import TokenBatches
from torchlint.semantic.loops.analysis import LoopAnalysis
from torchlint.semantic.loops.frequency import Frequencies, Frequency
from torchlint.semantic.loops.loops import Loop, Loops, Role
from torchlint.semantic.loops.ownership import Ownership
from torchlint.semantic.scope.labels import label
from torchlint.semantic.scope.libraries import TO_HOST
from torchlint.semantic.scope.limits import CALLERS
from torchlint.semantic.scope.scopes import How
from torchlint.semantic.syntax.methods import method_of, receiver_of, word_of
from torchlint.semantic.values.calls import CallSite
from torchlint.semantic.values.gradient import Grad
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.signatures import place
from torchlint.semantic.values.values import State, Value

_LOADER: Final = "torch.utils.data.DataLoader"
_PINNING: Final = ("ignite.distributed.auto_dataloader", "ignite.distributed.auto.auto_dataloader")
"""Functions that hand their arguments to DataLoader, and pin memory unless told otherwise."""
_OF_GRAPHS: Final = ("torch_geometric.loader.DataLoader", "torch_geometric.data.DataLoader")
"""Classes derived from DataLoader whose arguments behind `shuffle` are their own."""
_RUNNING: Final = {
    "fit": (TRAINER, "max_epochs", None),
    "run": (re.compile(r"ignite\.engine\..*(?:Engine|create_supervised_trainer)"), "max_epochs", 1),
    "train": (re.compile(r"catalyst\..*Runner"), "num_epochs", None),
}
"""The methods that pass over loaders: what makes their objects, and how often they do so."""
_KNOWN: Final = ("builtins.", "tqdm.", "torch.", "itertools.", "copy.", "logging.", "rich.")
_KEEPING: Final = frozenset(
    (*PREPARING, *"append insert update setdefault info debug print".split())
)
"""Functions that receive a loader and do not iterate over it."""


class Loader(CallSite):
    """One call that creates a `DataLoader`, as rules query it."""

    def __init__(self, loaders: Loaders, node: cst.Call) -> None:
        super().__init__(loaders.values, node)
        self._loaders = loaders

    @property
    def label(self) -> str:
        """The user's name for the loader."""
        owner = self._loaders.class_of(self.node)
        if owner is not None:
            return f"`{owner.name.value}`"
        return label(self._loaders.tree, self._loaders.scopes, self.node, "loader")

    def _place(self, name: str, position: int | None) -> int | None:
        if position is not None:
            return position
        return place(_OF_GRAPHS[0] if self.joins_graphs else _LOADER, "", name)

    # -- arguments ----------------------------------------------------

    def argument(self, name: str, position: int | None = None) -> Value:
        """Return the value of a parameter, from a `functools.partial` too."""
        found = super().argument(name, position)
        if found.state is State.ABSENT and self._prepared is not None:
            return self.values.argument(self._prepared, name)
        return found

    def given(self, name: str, position: int | None = None) -> cst.Arg | None:
        """Return the argument node if the call, or the `functools.partial`, spells it out."""
        found = super().given(name, position)
        if found is None and self._prepared is not None:
            return self.values.argument_node(self._prepared, name)
        return found

    def expression(self, name: str, position: int | None = None) -> cst.BaseExpression | None:
        """Return what is passed for a parameter, also in a dictionary or a `functools.partial`."""
        found = super().expression(name, position)
        if found is None and self._prepared is not None:
            return self.values.expression(self._prepared, name)
        return found

    @property
    def _prepared(self) -> cst.Call | None:
        return self._loaders.functions.prepared(self.node)

    @property
    def dataset(self) -> cst.BaseExpression | None:
        """The expression for the dataset, None if it is not in view."""
        return self.expression("dataset")

    def possible(self, name: str) -> tuple[cst.BaseExpression, ...]:
        """Return the expressions that an argument can be, also those of dictionaries behind `**`.

        None of them says whether the argument is passed at all.
        """
        given = self.given(name)
        if given is not None:
            return self._loaders.origins.of(given.value).values
        behind = [arg.value for arg in self.node.args if arg.star == "**"]
        found = [self._loaders.origins.of(each, (name,)).values for each in behind]
        return tuple(value for values in found for value in values)

    @property
    def traits(self) -> Traits:
        """The traits of the dataset, none if the call does not spell it out."""
        if self.dataset is None:
            return {}
        changed = {Trait.MUTATES: self.label} if self._loaders.changes_dataset(self) else {}
        return {**self._loaders.datasets.traits(self.dataset), **changed}

    @property
    def workers(self) -> Value:
        """The number of workers."""
        return self.argument("num_workers")

    @property
    def has_no_workers(self) -> bool:
        """Whether the loader has no workers, whichever dictionary of options it unpacks."""
        if self.workers.state is State.DECIDED and self.given("num_workers") is None:
            return bool(self.chosen_workers) and all(each.equals(0) for each in self.chosen_workers)
        return self.workers.state is State.ABSENT or self.workers.equals(0)

    @property
    def chosen_workers(self) -> list[Value]:
        """The numbers of workers that the call, or a dictionary that it unpacks, may pass."""
        return [Value(State.KNOWN, each) for each in self.possible("num_workers")]

    @property
    def batch_size(self) -> Value:
        """The number of items in a batch."""
        return self.argument("batch_size")

    @property
    def pins_by_default(self) -> bool:
        """Whether the loader pins memory unless told otherwise."""
        return self.name in _PINNING

    @property
    def joins_graphs(self) -> bool:
        """Whether the loader joins graphs to one, in a way of its own."""
        return self.name in _OF_GRAPHS

    @property
    def may_pin(self) -> bool:
        """Whether the loader pins memory, by a literal or by a decision elsewhere."""
        pins = self.argument("pin_memory")
        if pins.state in (State.ABSENT, State.UNKNOWN):
            return pins.state is State.ABSENT and self.pins_by_default
        return not (pins.equals(False) or pins.equals(None))

    @property
    def holds_tokens(self) -> bool:
        """Whether the batches hold nothing but numbers of tokens, masks and labels."""
        return self._loaders.tokens.are_loaded(self)

    @property
    def joins_tokens(self) -> bool:
        """Whether the loader only joins such numbers, which were made before."""
        return self._loaders.tokens.are_ready(self)

    # -- uses ----------------------------------------------------

    @property
    def passes(self) -> list[cst.CSTNode]:
        """The loops, comprehensions, `iter` calls and `yield from` over the loader."""
        return self._loaders.passes.get(id(self.node), [])

    @property
    def training_loops(self) -> list[Loop]:
        """The loops over the loader that train."""
        loops = [self._loaders.loops.loop(each) for each in self.passes if type(each) is cst.For]
        return [loop for loop in loops if loop.role is Role.TRAIN_BATCH]

    @property
    def trains(self) -> bool:
        """Whether a loop over the loader trains, or a trainer of a framework that gets it."""
        if self.training_loops or any(map(self._loaders.runs_epochs, self.receivers)):
            return True
        return any(each.name.value == "train_dataloader" for each in self._hooks)

    @property
    def receivers(self) -> list[cst.Call]:
        """The calls of functions outside this file that receive the loader."""
        return self._loaders.receivers.get(id(self.node), [])

    @property
    def escapes(self) -> bool:
        """Whether code outside this file may receive the loader."""
        return bool(self.receivers) or id(self.node) in self._loaders.kept or any(self._hooks)

    @property
    def takes_one_batch(self) -> bool:
        """Whether only a batch or two are ever taken, or a few in a loop that trains nothing."""
        return self.takes_one_batch_a_pass and not any(
            around.role is not Role.OTHER
            for place in self.passes
            for around in self._loaders.loops.around(place)
        )

    @property
    def takes_one_batch_a_pass(self) -> bool:
        """Whether each pass takes one of the batches, or the first few."""
        takes_one = self._loaders.short.takes_one
        if not self.passes or not all(map(takes_one, self.passes)):
            return False
        return not self.receivers and not any(self._hooks)

    @property
    def is_for_trainer(self) -> bool:
        """Whether a trainer of Transformers takes the loader, whose batches are mappings then."""
        function = self._loaders.scopes.function(self.node)
        if function is None or not function.name.value.endswith("_dataloader"):
            return False
        return self._loaders.values.hooks.framework(function) == "transformers"

    @property
    def is_unread(self) -> bool:
        """Whether nothing draws from the loader."""
        holder = self._loaders.tree.parent(self.node)
        return isinstance(holder, cst.Assign) and self._loaders.short.unread.are_unread(holder)

    @property
    def is_for_one_evaluation(self) -> bool:
        """Whether all that is done with the loader is to copy a network's outputs out, once."""
        loaders = self._loaders
        return (
            bool(self.passes)
            and not self.escapes
            and isinstance(loaders.tree.parent(self.node), (cst.Assign, cst.For))
            and not any(map(loaders.loops.is_in_loop, (self.node, *self.passes)))
            and all(loaders.copies_outputs(each, self.node) for each in self.passes)
        )

    # -- repeated passes -------------------------------------------------

    @property
    def repeated(self) -> list[cst.CSTNode]:
        """The places that start a pass over the same loader again and again."""
        found = [
            place
            for place in (*self.passes, *self.receivers)
            if self._repeats(place, self._drawn(place), CALLERS)
        ]
        return [*found, *self._hooks]

    @property
    def _hooks(self) -> Iterator[cst.FunctionDef]:
        """The methods from which Lightning takes the loader for all epochs."""
        return self._loaders.lightning.hooks(self._loaders.scopes.function(self.node))

    def _drawn(self, place: cst.CSTNode) -> cst.BaseExpression | None:
        """Return the expression for the loader at a place that draws from it."""
        given: list[cst.BaseExpression] = []
        if isinstance(place, cst.Call):
            given = [arg.value for arg in place.args]
        elif isinstance(place, (cst.For, cst.CompFor)):
            given = self._loaders.iteration.iterated(place.iter)
        elif isinstance(place, cst.From):
            given = self._loaders.iteration.iterated(place.item)
        return next((each for each in given if self in self._loaders.made_by(each)), None)

    def _repeats(self, place: cst.CSTNode, drawn: cst.BaseExpression | None, depth: int) -> bool:
        loaders = self._loaders
        if isinstance(place, cst.Call) and loaders.runs_epochs(place):
            return True
        same = [self, *(loaders.made_by(drawn) if drawn is not None else ())]
        for loop in loaders.loops.around(place):
            if any(each.is_rebuilt_in(loop, place) for each in same):
                return False
            if loop.role in (Role.EPOCH, Role.TRAIN_BATCH) or _goes_around(loop.node):
                return not loaders.loops.runs_once(loop.node)
        function = loaders.scopes.function(place)
        if function is None or not depth or self.is_built_by(function):
            return False
        if loaders.ownership.rate(function) not in (None, Rate.ONCE):
            return True
        return any(
            self._repeats(caller, given, depth - 1)
            for caller, given in self._handed_over(function, drawn)
        ) or any(self._repeats(loop, None, depth - 1) for loop in self._outer_passes(function))

    def _outer_passes(self, function: cst.FunctionDef) -> Iterator[cst.For | cst.CompFor]:
        """Yield the loops over objects that hold the loader, and whose `__iter__` draws from it."""
        loaders = self._loaders
        if function.name.value != "__iter__":
            return
        owner = loaders.scopes.class_of(function)
        loops: list[cst.For | cst.CompFor] = [*loaders.tree.all(cst.For)]
        loops += loaders.tree.all(cst.CompFor)
        for loop in loops:
            over = loaders.iteration.iterated(loop.iter)
            made = [call for each in over for call in loaders.origins.of(each).values]
            if any(
                isinstance(call, cst.Call)
                and loaders.functions.instance_of(call) is owner
                and any(self in loaders.made_by(arg.value) for arg in call.args)
                for call in made
            ):
                yield loop

    def _handed_over(
        self, function: cst.FunctionDef, drawn: cst.BaseExpression | None
    ) -> Iterator[tuple[cst.Call, cst.BaseExpression | None]]:
        """Yield the calls of a function that may hand it this very loader, and the argument."""
        functions, bound = self._loaders.functions, self._loaders.scopes.only(drawn)
        parameter = bound.name if bound.how is How.PARAMETER else ""
        for call in functions.callers(function):
            given = functions.passed(call, function, parameter) if parameter else None
            if given is None or self in self._loaders.made_by(given):
                yield call, given

    def is_built_by(self, region: cst.CSTNode) -> bool:
        """Return whether each run of some code rebuilds the loader."""
        bodies = self._loaders.functions.reached(region)
        return any(self._loaders.tree.inside(self.node, body) for body in bodies)

    def is_rebuilt_in(self, loop: Loop, place: cst.CSTNode) -> bool:
        """Return whether a loop builds the loader again whenever it gets to a place."""
        loaders, inner = self._loaders, self._loaders.tree.inside(self.node, loop.node)
        rare = inner and loaders.frequencies.below(self.node, loop.node) is Frequency.RARE
        beside = loaders.scopes.blocks(self.node)[0] in loaders.scopes.blocks(place)
        return self.is_built_by(loop.node.body) and (beside or not rare)


class Loaders(LoopAnalysis):
    """Finds the calls that create torch's DataLoader, and the passes over each."""

    def __init__(self, loops: Loops, datasets: Datasets, frequencies: Frequencies) -> None:
        super().__init__(loops)
        self.datasets = datasets
        self.frequencies = frequencies
        self.short = ShortPasses(loops)
        self.tokens = TokenBatches(self.functions, self.origins)
        self.lightning = LightningLoaders(self.values)
        self.ownership = Ownership(self.values)

    def __iter__(self) -> Iterator[Loader]:
        """Yield the loaders that the file makes, in source order."""
        return iter(self._all.values())

    def changes_dataset(self, loader: Loader) -> bool:
        """Return whether code of a batch loop changes the dataset: workers hold copies."""
        made = self.origins.of(loader.dataset).values if loader.dataset is not None else ()
        return any(
            loader in self.made_by(owner.value)
            if isinstance(owner, cst.Attribute) and owner.attr.value == "dataset"
            else any(each is one for each in self.origins.of(owner).values for one in made)
            for owner in self._changed_in_batch_loops
        )

    @cached_property
    def _changed_in_batch_loops(self) -> list[cst.BaseExpression]:
        """The objects of which code of a batch loop sets a part, or calls a method that does."""
        parts: list[cst.BaseExpression] = [line.target for line in self.tree.all(cst.AssignTarget)]
        parts += [line.target for line in self.tree.all(cst.AugAssign)]
        parts += [call.func for call in self.tree.all(cst.Call) if self._changes_object(call)]
        found: list[cst.BaseExpression] = []
        for part in parts:
            while isinstance(part, (cst.Attribute, cst.Subscript)):
                part = part.value
                found.append(part)
        in_loop = self.loops.is_in_loop
        return [each for each in found if in_loop(each, Role.TRAIN_BATCH, Role.EVAL_BATCH)]

    def _changes_object(self, call: cst.Call) -> bool:
        """Return whether a call is of a method that changes its object, or may be made for that."""
        run = self.functions.callees(call) if isinstance(call.func, cst.Attribute) else ()
        return any(map(self.datasets.changes_object, run)) or (
            not run and isinstance(self.tree.parent(call), cst.Expr)
        )

    def at(self, call: cst.Call) -> Loader:
        """Return the loader that a call makes."""
        return self._all.get(id(call)) or Loader(self, call)

    @cached_property
    def _all(self) -> dict[int, Loader]:
        return {
            id(call): Loader(self, call)
            for call in self.tree.all(cst.Call)
            if self.names.name(call.func) in (_LOADER, *_PINNING, *_OF_GRAPHS)
            or self._is_of_subclass(call)
            or self.functions.partial(call) == _LOADER
        }

    @cached_property
    def _subclasses(self) -> frozenset[cst.ClassDef]:
        """The classes in view that are derived from DataLoader."""
        owners = self.scopes.tree.all(cst.ClassDef)
        return frozenset(owner for owner in owners if _LOADER in self.functions.bases(owner))

    def _is_of_subclass(self, call: cst.Call) -> bool:
        """Return whether a call hands its arguments to DataLoader, as a class derived from it."""
        if not self._subclasses:
            return False
        if self.class_of(call) is not None:
            return True
        owner = self.functions.definition(call.func)
        if not isinstance(owner, cst.ClassDef) or owner not in self._subclasses:
            return False
        return self.functions.method(owner, "__init__") is None

    def class_of(self, call: cst.Call) -> cst.ClassDef | None:
        """Return the class derived from DataLoader whose `super().__init__()` a call is."""
        started = receiver_of(call, "__init__")
        if not isinstance(started, cst.Call) or self.names.name(started.func) != "builtins.super":
            return None
        function = self.scopes.function(call)
        owner = self.scopes.class_of(function) if function is not None else None
        if owner is None or self.functions.method(owner, "__init__") is not function:
            return None
        return owner if any(self.names.name(b.value) == _LOADER for b in owner.bases) else None

    @cached_property
    def _of_classes(self) -> dict[cst.ClassDef, Loader]:
        """The loaders that are instances of classes with an `__init__`, by class."""
        owners = ((self.class_of(loader.node), loader) for loader in self)
        return {owner: loader for owner, loader in owners if owner is not None}

    def made_by(self, node: cst.BaseExpression) -> list[Loader]:
        """Return the loaders that an expression can be."""
        return self._among(self.origins.of(node).values)

    def _among(self, values: Iterable[cst.BaseExpression]) -> list[Loader]:
        found = map(self.made_as, values)
        return [loader for loader in found if loader is not None]

    def made_as(self, value: cst.BaseExpression) -> Loader | None:
        """Return the loader that a call makes, None if it makes something else."""
        made = self._all.get(id(value))
        if made is not None or not isinstance(value, cst.Call) or not self._of_classes:
            return made
        owner = self.functions.definition(value.func)
        line = self.functions.lineage(owner) if isinstance(owner, cst.ClassDef) else ()
        return next((self._of_classes[each] for each in line if each in self._of_classes), None)

    # -- passes over a loader ----------------------------------------------------

    @cached_property
    def kept(self) -> set[int]:
        """The loaders passed to code outside this file, in a container too, or returned to it."""
        given = [
            arg.value
            for call in self.tree.all(cst.Call)
            if call.args and self._keeps(call)
            for arg in call.args
        ]
        for line in self.tree.all(cst.Return):
            function = self.scopes.function(line)
            if line.value is not None and function is not None:
                if not self.functions.callers(function) or self.functions.escapes(function):
                    given.append(line.value)
        held = (self.origins.of(node, within).values for node in given for within in ((None,), ()))
        return {id(each.node) for values in held for each in self._among(values)}

    def _keeps(self, call: cst.Call) -> bool:
        """Return whether a call runs code of another module, which may keep its arguments."""
        name = self.names.name(call.func) or ""
        if name.startswith(_KNOWN):
            return False
        return self.functions.callee(call) is None and not self.functions.definition(call.func)

    @cached_property
    def receivers(self) -> dict[int, list[cst.Call]]:
        """The calls of functions outside this file that receive each loader."""
        found: dict[int, list[cst.Call]] = {}
        for call in self.tree.all(cst.Call):
            if call.args and self._out_of_sight(call):
                holds = self.runs_epochs(call)
                for arg in call.args:
                    held = self.origins.of(arg.value, (None,)).values if holds else ()
                    is_loader = self.kinds.kind(arg.value) is Kind.LOADER
                    given = self.made_by(arg.value) if is_loader else []
                    for made in (*given, *self._among(held)):
                        found.setdefault(id(made.node), []).append(call)
        return found

    def runs_epochs(self, call: cst.Call) -> bool:
        """Return whether a framework passes again and again over the loaders that a call gives."""
        pattern, option, place = _RUNNING.get(method_of(call) or "", (None, "", None))
        if pattern is None or not isinstance(call.func, cst.Attribute):
            return False
        epochs = self.values.argument(call, option, place)
        several = epochs.state is not State.ABSENT and not epochs.equals(1)
        return any(
            several or (pattern is TRAINER and not takes_new_loaders(CallSite(self.values, made)))
            for made in self.origins.of(call.func.value).values
            if isinstance(made, cst.Call)
            if any(map(pattern.fullmatch, self.functions.classes(made.func)))
        )

    @cached_property
    def passes(self) -> dict[int, list[cst.CSTNode]]:
        """The loops and other passes over each loader."""
        passes: dict[int, list[cst.CSTNode]] = {}
        for node, drawn in self._draws():
            for source in self.iteration.iterated(drawn):
                for made in self.made_by(source):
                    found = passes.setdefault(id(made.node), [])
                    if node not in found:
                        found.append(node)
        return passes

    def _draws(self) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
        """Yield what passes over something, with what it passes over."""
        yield from ((loop, loop.iter) for loop in self.tree.all(cst.For))
        yield from ((each, each.iter) for each in self.tree.all(cst.CompFor))
        yield from ((each, each.item) for each in self.tree.all(cst.From))
        for call in self.tree.all(cst.Call):
            if self.names.name(call.func) == "builtins.iter" and call.args:
                yield call, call.args[0].value

    def _out_of_sight(self, call: cst.Call) -> bool:
        last = word_of(call)
        if last in _KEEPING or not last[:1].islower():
            return False
        name = self.names.name(call.func) or ""
        if name.startswith(("builtins.", "tqdm.")):
            return False
        return self.functions.callee(call) is None and not self.functions.definition(call.func)

    def copies_outputs(self, place: cst.CSTNode, made: cst.Call) -> bool:
        """Return whether a loop applies a network and copies what that returns to the host.

        It stands in the function that makes the loader, or in one that is called with it.
        """
        function = self.scopes.function(place)
        called = function is not None and bool(self.functions.callers(function))
        if not isinstance(place, cst.For) or not (called or function is self.scopes.function(made)):
            return False
        applies = self.loops.loop(place).role is Role.EVAL_BATCH
        return (applies or self.gradients.grad(place) is Grad.OFF) and any(
            method_of(call) in TO_HOST for call in self.tree.within(place.body, cst.Call)
        )


def _goes_around(node: cst.For | cst.While) -> bool:
    """Return whether a loop has several passes over a loader in it: a `while`, or epochs."""
    if isinstance(node, cst.While):
        return True
    if isinstance(node.iter, cst.Call) and word_of(node.iter) == "repeat":
        return True
    return isinstance(node.target, cst.Name) and "epoch" in node.target.value.lower()
