"""Passing layers: what a method of a network makes in each call, only to apply it there."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis
from torchlint.semantic.calls.instances import SAME
from torchlint.semantic.syntax.methods import receiver_of

_MOVES: Final = SAME - {"train", "eval"}


class PassingLayers(Analysis):
    """Finds the layers that are gone once the method that made them returns."""

    def network(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """Return the class of the network whose method runs a node, None if none does."""
        method = self.scopes.function(node)
        own = method.params.params[0] if method is not None and method.params.params else None
        owner = self.functions.owner_of_self(own) if own is not None else None
        bases = self.functions.bases(owner) if owner is not None else []
        words = (base.rpartition(".")[2] for base in bases)
        return owner if any(each in ("Module", "LightningModule") for each in words) else None

    def runs_once(self, node: cst.CSTNode) -> bool:
        """Return whether a node of a method runs only as its network is made."""
        method = self.scopes.function(node)
        if method is None or any(
            isinstance(each, cst.Lambda) for each in self.tree.ancestors(node)
        ):
            return False
        calls = self.functions.callers(method)
        return method.name.value == "__init__" or (bool(calls) and all(map(self._is_making, calls)))

    def _is_making(self, call: cst.Call) -> bool:
        """Return whether a constructor runs a call."""
        caller = self.scopes.function(call)
        return caller is not None and caller.name.value == "__init__"

    def applied_to(self, layer: cst.Call) -> cst.Call | None:
        """Return the call that applies a layer right where it is made, None if it may be kept.

        Whatever else is done with the layer, such as to give it weights or a mode, keeps it.
        """
        made = self.moved(layer)
        binding = self.scopes.stored(target) if (target := self._name(made)) is not None else None
        if binding is None:
            return self._call_of(made)
        calls = [self._call_of(self.moved(each)) for each in self.scopes.readers(binding)]
        return calls[0] if calls and None not in calls else None

    def moved(self, made: cst.BaseExpression) -> cst.BaseExpression:
        """Return a layer as the calls that move it return it: `layer.to(device)` of `layer`."""
        call = self.tree.parent(self.tree.parent(made))
        moves = isinstance(call, cst.Call) and receiver_of(call, *_MOVES) is made
        return self.moved(call) if isinstance(call, cst.Call) and moves else made

    def _name(self, made: cst.BaseExpression) -> cst.Name | None:
        line = self.tree.parent(made)
        if not isinstance(line, cst.Assign) or len(line.targets) != 1:
            return None
        target = line.targets[0].target
        return target if isinstance(target, cst.Name) else None

    def _call_of(self, made: cst.BaseExpression) -> cst.Call | None:
        """Return the call whose function a layer is."""
        call = self.tree.parent(made)
        return call if isinstance(call, cst.Call) and call.func is made else None
