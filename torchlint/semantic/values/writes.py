"""Writes: what a line writes into the memory of a tensor, an array or a container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.syntax.methods import method_of, receiver_of

_VIEWS: Final = ("data", "T", "mT", "real")
_FILLING: Final = frozenset(
    f"torch.distributed.{word}"
    for word in (
        "all_reduce all_reduce_coalesced broadcast reduce scatter recv irecv gather all_gather "
        "all_gather_into_tensor all_gather_coalesced all_to_all all_to_all_single "
        "reduce_scatter reduce_scatter_tensor"
    ).split()
)
"""The functions that write into a tensor they get."""


class Write(NamedTuple):
    """A write into the memory of `target`, `keys` items deep in the value asked about."""

    node: cst.AugAssign | cst.AssignTarget | cst.Call
    target: cst.BaseExpression
    keys: int = 0

    @property
    def tensor(self) -> cst.BaseExpression:
        """The tensor of which the target is an item or a view."""
        node = self.target
        while True:
            if isinstance(node, cst.Subscript):
                node = node.value
            elif (owner := receiver_of(node)) is not None:
                node = owner
            elif isinstance(node, cst.Attribute) and node.attr.value in _VIEWS:
                node = node.value
            else:
                return node


class Writes(Analysis):
    """Finds the lines that write into memory instead of giving a name another value."""

    def at(self, use: cst.BaseExpression) -> Write | None:
        """Return the write into a value at one of its uses, None if this only reads it.

        `x[0] = y`, `x += y`, `x.add_(y)` and `out=x` write into `x`, `x.data = y` into `x.data`.
        """
        part, keys, holder = use, 0, self.tree.parent(use)
        while isinstance(holder, cst.Subscript) and holder.value is part:
            part, keys, holder = holder, keys + 1, self.tree.parent(holder)
        if isinstance(holder, cst.Attribute):
            call = self.tree.parent(holder)
            if isinstance(call, cst.Call) and _is_in_place(call):
                return Write(call, part, keys)
        if isinstance(holder, cst.AugAssign) and holder.target is part:
            return Write(holder, part, keys)
        if isinstance(holder, cst.Arg):
            call = self.tree.parent(holder)
            if isinstance(call, cst.Call) and self._fills(call, holder):
                return Write(call, part, keys)
        while isinstance(holder, (cst.Element, cst.Tuple)):
            holder = self.tree.parent(holder)
        if isinstance(holder, cst.AssignTarget) and _is_memory(part):
            return Write(holder, part, keys)
        return None

    def within(self, region: cst.CSTNode) -> Iterator[Write]:
        """Yield the writes in some code, also those by `out=` and by collectives."""
        for line in self.tree.within(region, cst.AugAssign):
            yield Write(line, line.target)
        for each in self.tree.within(region, cst.AssignTarget):
            if _is_memory(each.target):
                yield Write(each, each.target)
        for call in self.tree.within(region, cst.Call):
            owner = receiver_of(call)
            if owner is not None and _is_in_place(call):
                yield Write(call, owner)
            yield from (Write(call, arg.value) for arg in call.args if self._fills(call, arg))

    def _fills(self, call: cst.Call, arg: cst.Arg) -> bool:
        """Return whether a call writes its result into an argument."""
        named = arg.keyword is not None and arg.keyword.value == "out"
        return named or self.names.name(call.func) in _FILLING


def _is_memory(target: cst.BaseExpression) -> bool:
    """Return whether assigning to a target writes into a value: `x[0]` or `x.data`."""
    named = isinstance(target, cst.Attribute) and target.attr.value == "data"
    return named or isinstance(target, cst.Subscript)


def _is_in_place(call: cst.Call) -> bool:
    """Return whether a call is of a method that modifies its tensor: `x.add_(y)`."""
    word = method_of(call)
    return word.endswith("_") and not word.endswith("__") and word != "requires_grad_"
