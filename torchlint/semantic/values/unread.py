"""Unread: values that nothing reads, though names and callers may get them."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.values.kind import Kind, derived

_SIZES: Final = frozenset("shape size dim ndim numel".split())
_LAID_OUT: Final = frozenset("view reshape flatten squeeze unsqueeze contiguous detach".split())
"""The methods of a tensor whose results have a size that its values do not change."""


class Unread(Analysis):
    """Tells which of the values that names and functions hand on come to nothing."""

    def uses(self, made: cst.Assign, target: cst.Name) -> list[cst.Name]:
        """Return the names that read what an assignment binds to a name."""
        return [
            use
            for use in self.tree.spelled(target.value)
            if self.scopes.reads(use)
            and any(binding.node is made for binding in self.scopes.reaching(use))
        ]

    def are_unread(self, made: cst.Assign) -> bool:
        """Return whether nothing reads what an assignment binds."""
        return all(self._is_unread(each.target, made) for each in made.targets)

    def _is_unread(self, target: cst.BaseExpression, made: cst.Assign) -> bool:
        if isinstance(target, cst.Attribute):
            word = target.attr.value
            places = (self.tree.parent(each) for each in self.functions.attributes(word))
            own = word.startswith("_") or self._is_kept_by_network(target)
            return own and all(map(self._is_stored, places))
        if not isinstance(target, cst.Name):
            return False
        uses = self.uses(made, target)
        if uses or self.scopes.function(made) is not None:
            return all(map(self.is_idle, uses))
        return self.tree.source.is_notebook or target.value in self.tree.view.idle

    def is_idle(self, use: cst.Name) -> bool:
        """Return whether a use only counts a value, keeps it or hands it back to be unused."""
        holder = self.tree.parent(use)
        if isinstance(holder, cst.Assign):
            return self.are_unread(holder)
        row = self.tree.parent(holder) if isinstance(holder, cst.Element) else None
        if isinstance(row, cst.Tuple) and isinstance(self.tree.parent(row), cst.Return):
            at = next(i for i, each in enumerate(row.elements) if each is holder)
            return self._is_handed_back_unread(row, at)
        return self._is_counted(use)

    def is_only_sized(self, value: cst.BaseExpression) -> bool:
        """Return whether nothing is read of a value but its size: `print(net(x).shape)`."""
        holder = self.tree.parent(value)
        if isinstance(holder, cst.Assign) and isinstance(holder.targets[0].target, cst.Name):
            uses = self.uses(holder, holder.targets[0].target)
            return bool(uses) and all(map(self.is_only_sized, uses))
        if not isinstance(holder, cst.Attribute) or holder.attr.value in _SIZES:
            return isinstance(holder, cst.Attribute)
        laid_out = self.tree.parent(holder) if holder.attr.value in _LAID_OUT else None
        return isinstance(laid_out, cst.Call) and self.is_only_sized(laid_out)

    def _is_handed_back_unread(self, row: cst.Tuple, at: int) -> bool:
        """Return whether no caller of a function uses one of the values that it returns."""
        function = self.scopes.function(row)
        calls = self.functions.callers(function) if function is not None else []
        if function is None or not calls or self.functions.escapes(function):
            return False
        return all(self._is_given_back_unread(call, at, len(row.elements)) for call in calls)

    def _is_given_back_unread(self, call: cst.Call, at: int, length: int) -> bool:
        """Return whether nothing reads one of the values of a tuple that a call returns."""
        taken = self.tree.parent(call)
        target = taken.targets[0].target if isinstance(taken, cst.Assign) else None
        if not isinstance(target, cst.Tuple) or len(target.elements) != length:
            return False
        assert isinstance(taken, cst.Assign)
        return self._is_unread(target.elements[at].value, taken)

    def _is_kept_by_network(self, target: cst.Attribute) -> bool:
        """Return whether an attribute is one of a network itself: `self.attn` of a module."""
        owner = self.functions.instance_of(target.value)
        return owner is not None and derived(self.functions.bases(owner)) is Kind.MODULE

    def _is_stored(self, holder: cst.CSTNode | None) -> bool:
        """Return whether what stands in a node is assigned to, alone or in a tuple."""
        row = self.tree.parent(holder) if isinstance(holder, cst.Element) else holder
        target = self.tree.parent(row) if isinstance(row, cst.Tuple) else row
        return isinstance(target, cst.AssignTarget)

    def _is_counted(self, use: cst.Name) -> bool:
        asked = self.tree.taker(use)
        return isinstance(asked, cst.Call) and self.names.name(asked.func) == "builtins.len"
