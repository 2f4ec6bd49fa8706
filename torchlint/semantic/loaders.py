"""Loaders: the DataLoader calls of a file, what they are called, who draws from them."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.functions import Functions
from torchlint.semantic.iteration import Iteration
from torchlint.semantic.kind import Kind
from torchlint.semantic.labels import label
from torchlint.semantic.loops import Loops, Role
from torchlint.semantic.origins import Origins
from torchlint.semantic.scopes import dotted

__all__ = ["Loaders"]

_LOADER: Final = "torch.utils.data.DataLoader"
_DEPTH: Final = 5
_KEEPING: Final = frozenset("prepare append insert update setdefault info debug print".split())
"""Functions that are handed a loader and do not draw from it."""


class Loaders:
    """Knows the calls that make torch's own loaders, and the passes over each."""

    def __init__(
        self, functions: Functions, origins: Origins, iteration: Iteration, loops: Loops
    ) -> None:
        self.functions = functions
        self.origins = origins
        self.iteration = iteration
        self.loops = loops
        self.kinds = loops.kinds
        self.tree = functions.tree
        self.scopes = functions.scopes
        self.names = functions.names
        self._passes: dict[int, list[cst.CSTNode]] | None = None

    def made_by(self, node: cst.BaseExpression) -> list[cst.Call]:
        """Give the calls of torch's DataLoader that an expression can come from."""
        return [
            value
            for value in self.origins.of(node).values
            if isinstance(value, cst.Call) and self.names.name(value.func) == _LOADER
        ]

    # -- what it is called ----------------------------------------------------

    def label(self, call: cst.Call) -> str:
        """Give what the user calls the loader that a call makes."""
        return label(self.tree, self.scopes, call, "loader")

    # -- who draws from it ----------------------------------------------------

    def passes(self, call: cst.Call) -> list[cst.CSTNode]:
        """Give the `for` loops, comprehensions and `iter` calls that begin a pass over a loader."""
        return self._collected().get(id(call), [])

    def handed(self, call: cst.Call) -> list[cst.Call]:
        """Give the calls of functions out of sight that are handed a loader."""
        return self._takers.get(id(call), [])

    @cached_property
    def _takers(self) -> dict[int, list[cst.Call]]:
        found: dict[int, list[cst.Call]] = {}
        for call in self.tree.all(cst.Call):
            if call.args and self._out_of_sight(call):
                for arg in call.args:
                    for made in self._may_be_loader(arg.value):
                        found.setdefault(id(made), []).append(call)
        return found

    def _collected(self) -> dict[int, list[cst.CSTNode]]:
        if self._passes is None:
            self._passes = {}
            for loop in self.tree.all(cst.For):
                self._note(loop, loop.iter)
            for comprehension in self.tree.all(cst.CompFor):
                self._note(comprehension, comprehension.iter)
            for call in self.tree.all(cst.Call):
                if self.names.name(call.func) == "builtins.iter" and call.args:
                    self._note(call, call.args[0].value)
        return self._passes

    def _note(self, node: cst.CSTNode, drawn: cst.BaseExpression) -> None:
        assert self._passes is not None
        for source in self.iteration.iterated(drawn):
            for made in self.made_by(source):
                found = self._passes.setdefault(id(made), [])
                if node not in found:
                    found.append(node)

    def _out_of_sight(self, call: cst.Call) -> bool:
        last = dotted(call.func).rpartition(".")[2]
        if last in _KEEPING or not last[:1].islower():
            return False
        name = self.names.name(call.func) or ""
        if name.startswith(("builtins.", "tqdm.")):
            return False
        return self.functions.callee(call) is None and not self.functions.definition(call.func)

    def _may_be_loader(self, node: cst.BaseExpression) -> list[cst.Call]:
        if not isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)):
            return []
        return self.made_by(node) if self.kinds.kind(node) is Kind.LOADER else []

    def draws_once(self, call: cst.Call) -> bool:
        """Whether all that is ever taken from a loader is one batch."""
        places = self.passes(call)
        return (
            bool(places)
            and all(self._is_one_draw(place) for place in places)
            and not self.handed(call)
        )

    def _is_one_draw(self, place: cst.CSTNode) -> bool:
        holder = self.tree.parent(place)
        drawing = self.tree.parent(holder) if isinstance(holder, cst.Arg) else None
        return (
            isinstance(drawing, cst.Call)
            and self.names.name(drawing.func) == "builtins.next"
            and not any(True for _ in self.loops.around(place))
        )

    # -- how often ------------------------------------------------------------

    def repeated(self, call: cst.Call) -> list[cst.CSTNode]:
        """Give the places that begin a pass over one and the same loader again and again."""
        places = [*self.passes(call), *self.handed(call)]
        return [place for place in places if self._repeats(place, call, _DEPTH)]

    def made_in_batch_loop(self, call: cst.Call) -> bool:
        """Whether a loader is made anew while batches are trained on (an evaluation in between)."""
        return self._in_batch_loop(call, _DEPTH)

    def _in_batch_loop(self, node: cst.CSTNode, depth: int) -> bool:
        if any(loop.role is Role.TRAIN_BATCH for loop in self.loops.around(node)):
            return True
        function = self.scopes.function(node)
        return (
            function is not None
            and depth > 0
            and any(
                self._in_batch_loop(caller, depth - 1)
                for caller in self.functions.callers(function)
            )
        )

    def _repeats(self, place: cst.CSTNode, made: cst.Call, depth: int) -> bool:
        for loop in self.loops.around(place):
            if self._builds(loop.node.body, made):
                return False
            if loop.role in (Role.EPOCH, Role.TRAIN_BATCH) or _counts_epochs(loop.node):
                return True
        function = self.scopes.function(place)
        if function is None or not depth or self._builds(function, made):
            return False
        return any(
            self._repeats(caller, made, depth - 1) for caller in self.functions.callers(function)
        )

    def _builds(self, region: cst.CSTNode, made: cst.Call) -> bool:
        """Whether each run of some code makes the loader anew."""
        return any(self.tree.inside(made, body) for body in self.functions.reached(region, _DEPTH))


def _counts_epochs(node: cst.For | cst.While) -> bool:
    target = node.target if isinstance(node, cst.For) else None
    return isinstance(target, cst.Name) and "epoch" in target.value.lower()
