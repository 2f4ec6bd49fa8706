"""Numbers under torchrun: summed over the processes, counted for all, or noted as local."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

from torchlint.api import How, Kind, Note, Total
from torchlint_rules._torchrun.edits import Writer
from torchlint_rules._torchrun.shape import ObstacleError

__all__ = ["Numbers"]

_TELLING: Final = frozenset(
    "set_postfix set_description set_postfix_str add_scalar info log progress_bar write".split()
)


@dataclass
class Numbers(Writer):
    """Makes the numbers that a training loop collects those of all processes."""

    notes: list[Note] = field(default_factory=list)
    sums: bool = False
    """Whether anything is summed over the processes."""

    def write(self) -> None:
        """Sum what is read behind the loop, count for all what it prints."""
        self._totals()
        self._progress_counts()

    def _totals(self) -> None:
        """Add up behind the batch loop what is printed later, say what stays local."""
        loop = self.shape.batches
        program = self.script.program
        lines = [self._summed(total) for total in program.totals(loop) if total.read_after]
        summed = {total.name for total in program.totals(loop)}
        for meter, average in self._meters():
            summed.add(meter)
            lines += [
                f"{meter}.sum = sum_over_ranks({meter}.sum)",
                f"{meter}.count = sum_over_ranks({meter}.count)",
            ]
            if average:
                lines.append(f"{meter}.avg = {meter}.sum / {meter}.count")
        self._note_local(summed)
        if lines:
            if not self.script.rewrite.stands_alone(loop.node):
                raise ObstacleError(loop.node, "nothing can be put behind it")
            self.sums = True
            self.after(loop.node, *lines)

    def _summed(self, total: Total) -> str:
        mean = " / WORLD_SIZE" if total.mean else ""
        return f"{total.name} = sum_over_ranks({total.name}){mean}"

    def _meters(self) -> Iterator[tuple[str, bool]]:
        """Yield the names of average meters that the loop feeds, and whether they store `avg`."""
        script = self.script
        loop = self.shape.batches.node
        seen = set()
        for call in script.functions.own(loop.body, cst.Call):
            func = call.func
            if not isinstance(func, cst.Attribute) or func.attr.value != "update":
                continue
            if not isinstance(func.value, cst.Name) or func.value.value in seen:
                continue
            owner = script.functions.instance_of(func.value)
            if owner is None:
                continue
            fields = script.scopes.scope_at(owner).bindings
            if {"self.sum", "self.count"} <= fields.keys() and len(call.args) == 2:
                if script.program.read_after(func.value.value, loop):
                    if script.program.is_batch_size(call.args[1].value):
                        seen.add(func.value.value)
                        yield func.value.value, "self.avg" in fields

    def _note_local(self, summed: set[str]) -> None:
        """Note what is printed of the share of one process."""
        script = self.script
        loop = self.shape.batches.node
        made = {
            binding.name
            for bindings in script.scopes.scope(loop).bindings.values()
            for binding in bindings
            if script.tree.inside(binding.node, loop.body)
        }
        made |= {
            call.func.value.value
            for call in script.functions.own(loop.body, cst.Call)
            if isinstance(call.func, cst.Attribute)
            and call.func.attr.value in ("append", "update")
            and isinstance(call.func.value, cst.Name)
        }
        for call in script.all(cst.Call):
            if not self._tells(call):
                continue
            read = {name.value for name in script.within(call, cst.Name)} & made
            inside = script.tree.inside(call, loop.body)
            home = script.function(call) is script.function(loop)
            behind = home and script.tree.order(call) > script.tree.end(loop)
            if (inside and read) or (behind and read - summed):
                told = "under torchrun: of the samples of rank 0 only"
                self.notes.append(Note(script.span(call), told))

    def _tells(self, call: cst.Call) -> bool:
        """Whether a call shows numbers to the user."""
        if self.script.name(call.func) == "builtins.print":
            return True
        return isinstance(call.func, (cst.Name, cst.Attribute)) and (
            (call.func.value if isinstance(call.func, cst.Name) else call.func.attr.value)
            in _TELLING
        )

    def _progress_counts(self) -> None:
        """Let `i * len(data)` in what the loop prints count the samples of all processes."""
        script = self.script
        counters = {
            name.value
            for name in script.within(self.shape.batches.node, cst.Name)
            if (bound := script.scopes.stored(name)) is not None
            and bound.how is How.LOOP
            and script.kind(name) is Kind.NUMBER
        }
        for call in script.calls("builtins.print"):
            if not script.tree.inside(call.node, self.shape.batches.node.body):
                continue
            for product in script.within(call.node, cst.BinaryOperation):
                if not isinstance(product.operator, cst.Multiply):
                    continue
                factors = list(_factors(product))
                named = {each.value for each in factors if isinstance(each, cst.Name)}
                for side in factors:
                    if script.program.is_batch_size(side) and named & counters:
                        code = script.code(side)
                        self.edits += script.rewrite.replace(side, f"{code} * WORLD_SIZE")


def _factors(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """Yield what a product multiplies, without divisors."""
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, (cst.Multiply, cst.Divide)):
            yield from _factors(node.left)
            if isinstance(node.operator, cst.Multiply):
                yield from _factors(node.right)
            return
    yield node
