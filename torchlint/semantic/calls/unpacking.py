"""Unpacking: the class of one of several objects that a call gives at once."""

from __future__ import annotations

import libcst as cst

from torchlint.semantic.calls.instances import PREPARING
from torchlint.semantic.calls.part import Part


class Unpacking(Part):
    """Looks through `net, optimizer = build()` to the objects that are given."""

    def instance(self, value: cst.CSTNode | None, position: object) -> cst.ClassDef | None:
        """Return the class of what a call gives at a position, None if it is not known."""
        if not isinstance(value, cst.Call) or not isinstance(position, int) or position < 0:
            return None
        made = self.functions.definition(value.func)
        if isinstance(made, cst.FunctionDef):
            return self._returned(made, position)
        return self._prepared(value, position) if made is None else None

    def _returned(self, function: cst.FunctionDef, position: int) -> cst.ClassDef | None:
        """Return the class of one element of the tuples that a function returns."""
        found: set[cst.ClassDef | None] = set()
        for value in self.functions.returns(function):
            parts = value.elements if isinstance(value, cst.Tuple) else ()
            if position >= len(parts) or any(
                isinstance(each, cst.StarredElement) for each in parts
            ):
                return None
            found.add(self.functions.instance_of(parts[position].value))
        return found.pop() if len(found) == 1 else None

    def _prepared(self, call: cst.Call, position: int) -> cst.ClassDef | None:
        """Look through `net, optimizer = accelerator.prepare(net, optimizer)`."""
        plain = all(not arg.star and arg.keyword is None for arg in call.args)
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in PREPARING:
            return None
        if not plain or position >= len(call.args):
            return None
        return self.functions.instance_of(call.args[position].value)
