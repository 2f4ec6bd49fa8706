"""Unstepped: optimizers that the code makes, and saves perhaps, but never steps."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.calls.instances import PREPARING
from torchlint.semantic.syntax.methods import method_of
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.known import KnownValues
from torchlint.semantic.values.unread import Unread

_ASIDE: Final = frozenset(
    "state_dict load_state_dict zero_grad add_param_group param_groups defaults".split()
)
"""What code may ask of an optimizer that does not step it."""


class Unstepped(Unread):
    """Tells which optimizers are made, saved, loaded or cleared at most."""

    def __init__(self, values: KnownValues) -> None:
        super().__init__(values.functions)
        self.kinds = values.kinds

    def is_made_by(self, call: cst.Call) -> bool:
        """Return whether nothing steps the optimizer that a call makes."""
        holder = self.tree.parent(call)
        return isinstance(holder, cst.Assign) and self.are_unread(holder)

    def is_kept_by(self, call: cst.Call) -> bool:
        """Return whether the optimizer that a call makes is used, for something but steps."""
        holder = self.tree.parent(call)
        names = [each.target for each in holder.targets] if isinstance(holder, cst.Assign) else []
        return self.is_made_by(call) and any(
            self.uses(holder, each) for each in names if isinstance(each, cst.Name)
        )

    def is_idle(self, use: cst.Name) -> bool:
        """Return whether a use of an optimizer neither steps it nor hands it on."""
        holder = self.tree.parent(use)
        if isinstance(holder, cst.Attribute):
            return holder.attr.value in _ASIDE
        taker = self.tree.taker(use)
        if isinstance(taker, cst.Call) and method_of(taker) in PREPARING:
            at = next(i for i, each in enumerate(taker.args) if each.value is use)
            return self._is_given_back_unread(taker, at, len(taker.args))
        is_scheduled = taker is not None and self.kinds.kind(taker) is Kind.SCHEDULER
        return is_scheduled or super().is_idle(use)
