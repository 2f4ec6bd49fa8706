"""Code that all processes must run alike: read the whole data, ask no user, stop together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import libcst as cst

from torchlint.api import How, Kind, Loop, Script, receiver_of
from torchlint_rules.tl701_data_parallel.torchrun.shape import ObstacleError, Shape

_LOOKS: Final = frozenset({"builtins.len", "builtins.enumerate", "builtins.print"})
_CLOCKS: Final = ("time.", "datetime.")
_SEEDS: Final = frozenset({"torch.manual_seed", "torch.random.manual_seed"})


@dataclass
class Agreement:
    """Refuses code that would differ between processes with different shares of the samples."""

    script: Script
    shape: Shape

    def check(self) -> None:
        """Check the script; raises `ObstacleError`."""
        self._refuse_questions()
        self._refuse_clocks()
        self._refuse_other_reads()
        self._refuse_loader_uses()
        self._refuse_other_data()
        self._refuse_unseeded_evaluation()

    def _refuse_questions(self) -> None:
        for site in self.script.calls.of("builtins.input"):
            raise ObstacleError(site.node, "every process would ask")

    # -- stopping -------------------------------------------------------------

    def _stops(self) -> Iterator[cst.BaseExpression]:
        """Yield the conditions that end the training or the loop over its data."""
        epochs = self.shape.epochs
        for loop in (self.shape.batches.node, *([epochs] if epochs is not None else [])):
            for kind in (cst.Break, cst.Return):
                for leave in self.script.functions.own(loop.body, kind):
                    for test in self.script.tree.tests_around(leave):
                        if self.script.tree.inside(test, loop):
                            yield test

    def _refuse_clocks(self) -> None:
        for test in self._stops():
            values: list[cst.CSTNode] = [test]
            for name in self.script.tree.within(test, cst.Name):
                values += [
                    binding.value
                    for binding in self.script.scopes.reaching(name)
                    if binding.value is not None
                ]
            for value in values:
                for call in self.script.tree.within(value, cst.Call):
                    if (self.script.name(call.func) or "").startswith(_CLOCKS):
                        raise ObstacleError(test, "processes would not stop at the same time")

    def _refuse_unseeded_evaluation(self) -> None:
        """Refuse decisions by an evaluation whose order differs between processes."""
        script = self.script
        if any(script.name(call.func) in _SEEDS for call in script.tree.all(cst.Call)):
            return
        decides = next(self._stops(), None) is not None or any(
            site.node.args and self._is_scheduler(site.node)
            for site in script.calls.of_methods("step")
        )
        if not decides:
            return
        for loader in script.loaders:
            if loader.node is not self.shape.loader and loader.argument("shuffle").equals(True):
                why = "each process would evaluate in another order: call `torch.manual_seed` first"
                raise ObstacleError(loader.node, why)

    def _is_scheduler(self, call: cst.Call) -> bool:
        return self.script.kind(receiver_of(call) or call) is Kind.SCHEDULER

    # -- the training data ----------------------------------------------------

    def _refuse_other_reads(self) -> None:
        """Refuse a second loop over the training loader, in a function that gets it."""
        for loop in self.script.loops.all():
            if loop.node is self.shape.batches.node or loop.loader is None:
                continue
            for given in self._handed(loop):
                if self.script.program.loader_call(given) is self.shape.loader:
                    why = "it would read the share of one process of the training data"
                    raise ObstacleError(self.script.tree.smallest_statement(given), why)

    def _handed(self, loop: Loop) -> Iterator[cst.BaseExpression]:
        if isinstance(loop.loader, cst.Name):
            for binding in self.script.scopes.reaching(loop.loader):
                if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
                    yield from self.script.functions.given(binding.node)

    def _refuse_loader_uses(self) -> None:
        script = self.script
        for name in script.tree.all(cst.Name):
            if not script.scopes.reads(name) or self._in_header(name):
                continue
            if script.program.loader_call(name) is not self.shape.loader:
                continue
            holder = script.tree.parent(name)
            if isinstance(holder, cst.Attribute) and holder.value is name:
                if holder.attr.value == "batch_size":
                    raise ObstacleError(holder, "it is the batch size of one process")
                if holder.attr.value in ("sampler", "batch_sampler"):
                    raise ObstacleError(holder, "the sampler is another one under torchrun")
            call = script.tree.taker(name)
            if isinstance(call, cst.Call) and not self._may_read(call):
                why = "it would read the share of one process of the training data"
                raise ObstacleError(script.tree.smallest_statement(call), why)

    def _refuse_other_data(self) -> None:
        """Refuse steps on the batches of a second loader, which has no distributed sampler."""
        script, node = self.script, self.shape.batches.node
        why = "every process would train on the whole of its batches"
        for name in script.tree.within(node.iter, cst.Name) if isinstance(node, cst.For) else ():
            if script.kind(name) is Kind.LOADER:
                if script.program.loader_call(name) is not self.shape.loader:
                    raise ObstacleError(name, why)
        for call in script.functions.own(node.body, cst.Call):
            if script.name(call.func) == "builtins.next" and call.args:
                raise ObstacleError(call, why)

    def _in_header(self, name: cst.Name) -> bool:
        node = self.shape.batches.node
        return isinstance(node, cst.For) and self.script.tree.inside(name, node.iter)

    def _may_read(self, call: cst.Call) -> bool:
        """Return whether a call that gets the training loader is checked elsewhere."""
        called = self.script.name(call.func)
        if called in _LOOKS or self.script.functions.definition(call.func) is not None:
            return True
        return self.script.functions.callee(call) is not None
