"""Numbers under torchrun: reduced over the processes, counted for all, or noted as local."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from torchlint.api import How, Kind, Note
from torchlint_rules.tl701_data_parallel.torchrun.carried import Carried
from torchlint_rules.tl701_data_parallel.torchrun.edits import Writer
from torchlint_rules.tl701_data_parallel.torchrun.shape import ObstacleError
from torchlint_rules.tl701_data_parallel.torchrun.shows import shows


@dataclass
class Numbers(Writer):
    """Reduces the numbers that a training loop collects over all processes."""

    notes: list[Note] = field(default_factory=list)
    sums: bool = False
    """Whether anything is summed over the processes."""

    def write(self) -> None:
        """Reduce the numbers read after the loop, and scale the counts that it prints."""
        self._totals()
        self._progress_counts()

    def _totals(self) -> None:
        """Reduce the numbers read after the batch loop, and note which stay local."""
        loop = self.shape.batches
        lines = Carried(self.script, self.shape).find()
        self._note_local()
        if lines:
            if not self.script.edits.stands_alone(loop.node):
                raise ObstacleError(loop.node, "nothing can be put behind it")
            self.sums = True
            self.after(loop.node, *lines)
            self._sizes(lines)

    def _sizes(self, lines: Sequence[str]) -> None:
        """Divide sums over samples by the number of samples of all processes."""
        script, loop = self.script, self.shape.batches
        sums = {line.partition(" =")[0] for line in lines if not line.endswith("/ WORLD_SIZE")}
        for division in script.tree.all(cst.BinaryOperation):
            behind = script.tree.order(division) > script.tree.end(loop.node)
            here = script.scopes.home(division) is script.scopes.home(loop.node)
            if not isinstance(division.operator, cst.Divide) or not behind or not here:
                continue
            if not any(text in script.code(division.left) for text in sums):
                continue
            for call in script.tree.within(division.right, cst.Call):
                if self._counts_samples(call):
                    loader = script.code(loop.loader) if loop.loader is not None else ""
                    code = f"(len({loader}.sampler) * WORLD_SIZE)"
                    self.edits += script.edits.replace(call, code)

    def _counts_samples(self, call: cst.Call) -> bool:
        """Return whether a call returns the length of the distributed dataset."""
        script = self.script
        if script.name(call.func) != "builtins.len" or len(call.args) != 1:
            return False
        asked = call.args[0].value
        if isinstance(asked, cst.Attribute) and asked.attr.value == "dataset":
            return script.program.loader_call(asked.value) is self.shape.loader
        return script.code(asked) == script.code(self.shape.dataset)

    def _note_local(self) -> None:
        """Note the values of one process that the loop shows."""
        script = self.script
        loop = self.shape.batches
        shares = script.program.shares(loop)
        told = "under torchrun: of the samples of rank 0 only"
        for call in script.functions.own(loop.node.body, cst.Call):
            local = any(shares.is_local(arg.value) for arg in call.args)
            if local and shows(script, call):
                self.notes.append(Note(script.span(call), told))

    def _progress_counts(self) -> None:
        """Make `i * len(data)` in the loop's output count the samples of all processes."""
        script = self.script
        counters = {
            name.value
            for name in script.tree.within(self.shape.batches.node, cst.Name)
            if (bound := script.scopes.stored(name)) is not None
            and bound.how is How.LOOP
            and script.kind(name) is Kind.NUMBER
        }
        for call in script.calls.of("builtins.print"):
            if not script.tree.inside(call.node, self.shape.batches.node.body):
                continue
            for product in script.tree.within(call.node, cst.BinaryOperation):
                if not isinstance(product.operator, cst.Multiply):
                    continue
                factors = list(_factors(product))
                named = {each.value for each in factors if isinstance(each, cst.Name)}
                for side in factors:
                    if script.program.is_batch_size(side) and named & counters:
                        code = script.code(side)
                        self.edits += script.edits.replace(side, f"{code} * WORLD_SIZE")


def _factors(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield the factors of a product, without divisors."""
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, (cst.Multiply, cst.Divide)):
            yield from _factors(node.left)
            if isinstance(node.operator, cst.Multiply):
                yield from _factors(node.right)
            return
    yield node
