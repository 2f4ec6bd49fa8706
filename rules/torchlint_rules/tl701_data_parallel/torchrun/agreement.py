"""Decisions that all processes must make alike, though each has its own share of the samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from torchlint.api import Binding, How, Kind, Script, method_of, receiver_of, root_of
from torchlint_rules.tl701_data_parallel.torchrun.shape import Shape
from torchlint_rules.tl701_data_parallel.torchrun.wrap import ObstacleError

_CLOCKS: Final = ("time.", "datetime.")
_SEEDS: Final = {
    "torch": ("torch.manual_seed", "torch.random.manual_seed"),
    "numpy": ("numpy.random.seed",),
    "random": ("random.seed",),
}
_DRAWS: Final = {
    "torch": (
        "torch.utils.data.random_split", "torch.randperm", "torch.rand", "torch.randn",
        "torch.randint",
    ),
    "numpy": (
        "numpy.random.permutation", "numpy.random.shuffle", "numpy.random.choice",
        "numpy.random.randn", "numpy.random.rand", "numpy.random.normal", "numpy.random.randint",
        "sklearn.model_selection.train_test_split",
    ),
    "random": ("random.shuffle", "random.sample", "random.choice"),
}  # fmt: skip
_OWN_SEED: Final = frozenset({"generator", "random_state", "seed"})
_PARTS: Final = (Kind.MODULE, Kind.OPTIMIZER, Kind.SCALER, Kind.CRITERION, Kind.SCHEDULER)
_LEAVING: Final = (cst.Break, cst.Continue, cst.Return, cst.Raise)
_BOUND_ELSEWHERE: Final = (How.IMPORT, How.FUNCTION, How.CLASS)
_SHARE: Final = "it would read the share of one process of the training data"
_OTHERS: Final = "every process would train on the whole of its batches"
_DIFFERS: Final = "it depends on one process's samples, but all must agree"


@dataclass
class Agreement:
    """Refuses code that would differ between processes with different shares of the samples."""

    script: Script
    shape: Shape
    loaders: set[cst.CSTNode] = field(default_factory=set)
    """The loaders that give each process other samples, or the same ones in another order."""
    own: set[Binding] = field(default_factory=set)
    """The names whose values depend on the samples of one process."""

    def check(self) -> None:
        """Check the script; raises `ObstacleError`."""
        self._refuse_draws()
        self._refuse_reads()
        self._refuse_other_data()
        self._follow()
        self._refuse_decisions()

    def _is_seeded(self, library: str) -> bool:
        return next(iter(self.script.calls.of(*_SEEDS[library])), None) is not None

    def _refuse_draws(self) -> None:
        """Refuse random draws that would split or build the data differently in each process."""
        script = self.script
        for library, draws in _DRAWS.items():
            for site in script.calls.of(*draws) if not self._is_seeded(library) else ():
                own = any(a.keyword and a.keyword.value in _OWN_SEED for a in site.node.args)
                item = script.scopes.class_of(site.node) is not None
                if not own and not item and script.loops.batch_loop(site.node) is None:
                    why = f"each process would draw differently: call `{_SEEDS[library][0]}` first"
                    raise ObstacleError(site.node, why)

    # -- the training data ----------------------------------------------------

    def _refuse_reads(self) -> None:
        """Refuse to use the training loader for anything but the training loop."""
        script, node = self.script, self.shape.batches.node
        for name in script.tree.all(cst.Name):
            if not script.scopes.reads(name) or script.kind(name) is not Kind.LOADER:
                continue
            if script.program.loader_call(name) is not self.shape.loader:
                continue
            holder = script.tree.parent(name)
            if isinstance(holder, cst.Attribute) and holder.attr.value != "dataset":
                raise ObstacleError(holder, "it is another one in each process")
            call = script.tree.parent(holder) if isinstance(holder, cst.Arg) else None
            in_header = isinstance(node, cst.For) and script.tree.inside(name, node.iter)
            if isinstance(call, cst.Call) and not in_header and not self._is_training(call):
                raise ObstacleError(script.tree.smallest_statement(call), _SHARE)

    def _is_training(self, call: cst.Call) -> bool:
        """Return whether a call runs the training loop, or only asks for a length."""
        if self.script.name(call.func) == "builtins.len":
            return True
        loop = self.shape.batches.node
        reached = self.script.functions.reached(call)
        return any(self.script.tree.inside(loop, body) for body in reached)

    def _refuse_other_data(self) -> None:
        """Refuse steps on the batches of a second loader, which has no distributed sampler."""
        script, node = self.script, self.shape.batches.node
        for name in script.tree.within(node.iter, cst.Name) if isinstance(node, cst.For) else ():
            if script.kind(name) is Kind.LOADER:
                if script.program.loader_call(name) is not self.shape.loader:
                    raise ObstacleError(name, _OTHERS)
        for call in script.functions.own(node.body, cst.Call):
            if script.name(call.func) == "builtins.next" and call.args:
                raise ObstacleError(call, _OTHERS)

    # -- what depends on the samples of one process ---------------------------

    def _follow(self) -> None:
        """Find the names whose values depend on the samples of one process."""
        script = self.script
        self.loaders = {self.shape.loader}
        if not self._is_seeded("torch"):
            shuffled = (each for each in script.loaders if each.argument("shuffle").equals(True))
            self.loaders |= {each.node for each in shuffled}
        known = -1
        while len(self.own) > known:
            known = len(self.own)
            self.own |= {each for each in script.scopes.bindings() if self._is_made_of_own(each)}
            for holder in self._holders():
                self.own |= {
                    each
                    for each in script.scopes.reaching(holder)
                    if each.how not in _BOUND_ELSEWHERE
                }

    def _is_made_of_own(self, binding: Binding) -> bool:
        script = self.script
        if isinstance(binding.node, cst.Param):
            return any(map(self.is_own, script.functions.given(binding.node)))
        if binding.value is None or self._counts(binding):
            return False
        tests = script.tree.tests_around(binding.node)
        return self.is_own(binding.value) or any(map(self.is_own, tests))

    def _counts(self, binding: Binding) -> bool:
        """Return whether a name is the counter of `enumerate`."""
        return (
            binding.how is How.LOOP
            and binding.path == (0,)
            and isinstance(binding.value, cst.Call)
            and self.script.name(binding.value.func) == "builtins.enumerate"
        )

    def _holders(self) -> Iterator[cst.Name]:
        """Yield the objects that are given values of one process, and may keep them."""
        script = self.script
        kept: list[cst.CSTNode] = [
            call.func
            for call in script.tree.all(cst.Call)
            if any(self.is_own(arg.value) for arg in call.args)
        ]
        for assign in script.tree.all(cst.Assign):
            if self.is_own(assign.value):
                kept += [target.target for target in assign.targets]
        for added in script.tree.all(cst.AugAssign):
            if self.is_own(added.value):
                kept.append(added.target)
        for node in kept:
            root = root_of(node, items=True)
            if isinstance(root, cst.Name) and script.kind(root) not in _PARTS:
                yield root

    def is_own(self, node: cst.CSTNode) -> bool:
        """Return whether an expression depends on the samples, or the clock, of one process."""
        script = self.script
        for call in script.tree.within(node, cst.Call):
            if (script.name(call.func) or "").startswith(_CLOCKS):
                return True
            if isinstance(call.func, cst.Name) and self._is_training(call):
                if script.name(call.func) is None:
                    return True
        return any(map(self._is_own_name, script.tree.within(node, cst.Name)))

    def _is_own_name(self, name: cst.Name) -> bool:
        script = self.script
        call = script.tree.parent(script.tree.parent(name))
        if isinstance(call, cst.Call) and script.name(call.func) == "builtins.len":
            return False
        if not self.own.isdisjoint(script.scopes.reaching(name)):
            return True
        return script.kind(name) is Kind.LOADER and script.program.loader_call(name) in self.loaders

    # -- decisions ------------------------------------------------------------

    def _refuse_decisions(self) -> None:
        script = self.script
        branches: list[cst.If | cst.While] = [*script.tree.all(cst.If), *script.tree.all(cst.While)]
        for branch in branches:
            parts = [branch.body, *([branch.orelse] if branch.orelse is not None else [])]
            if any(map(self._matters, parts)) and self.is_own(branch.test):
                raise ObstacleError(branch.test, _DIFFERS)
        for site in script.calls.of_methods("step"):
            scheduler = script.kind(receiver_of(site.node) or site.node) is Kind.SCHEDULER
            if scheduler and any(self.is_own(arg.value) for arg in site.node.args):
                raise ObstacleError(site.node, _DIFFERS)

    def _matters(self, part: cst.CSTNode) -> bool:
        """Return whether processes diverge if only some of them run some code."""
        script = self.script
        loops = [self.shape.batches.node, *filter(None, [self.shape.epochs])]
        if any(script.tree.inside(part, loop) for loop in loops):
            if any(next(script.tree.within(part, kind), None) is not None for kind in _LEAVING):
                return True
        return script.loops.runs_module(part) or any(
            script.loops.is_step(call) or method_of(call) == "step"
            for call in script.tree.within(part, cst.Call)
        )
