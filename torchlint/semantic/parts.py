"""Parts: pieces of batches, followed back to the loaders that hand them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.semantic.functions import Functions
from torchlint.semantic.iteration import Iteration
from torchlint.semantic.kind import Kind
from torchlint.semantic.loaders import Loaders
from torchlint.semantic.origins import Origins, Steps
from torchlint.semantic.scopes import Binding, How

__all__ = ["Part", "Parts"]

_VIEWS: Final = frozenset(
    (
        "view reshape unsqueeze squeeze permute transpose t flatten narrow expand unflatten "
        "view_as detach requires_grad_ swapaxes movedim"
    ).split()
)
_DEPTH: Final = 12


class Part(NamedTuple):
    """What the batches of a loader hold at the end of a way into them; no way: the whole batch."""

    loader: cst.Call
    steps: Steps
    place: cst.CSTNode
    """The loop that takes the batch from the loader, or the place of `next`."""


class Parts:
    """Follows expressions to the batches that they are a piece of, as the loader made it."""

    def __init__(
        self, functions: Functions, iteration: Iteration, origins: Origins, loaders: Loaders
    ) -> None:
        self.functions = functions
        self.iteration = iteration
        self.origins = origins
        self.loaders = loaders
        self.kinds = loaders.kinds
        self.scopes = functions.scopes
        self.names = functions.names

    def of(self, node: cst.BaseExpression) -> tuple[Part, ...]:
        """Give all that an expression can be a piece of; nothing if it may be something else."""
        return tuple(self._follow(node, (), _DEPTH) or ())

    def _follow(self, node: cst.BaseExpression, steps: Steps, depth: int) -> list[Part] | None:
        if not depth:
            return None
        if isinstance(node, cst.Name):
            return self._of_bindings(self.scopes.reaching(node), steps, depth - 1)
        if isinstance(node, cst.Subscript):
            return self._of_item(node, steps, depth - 1)
        if isinstance(node, cst.Call):
            return self._of_call(node, steps, depth - 1)
        if isinstance(node, (cst.Tuple, cst.List)) and steps and isinstance(steps[0], int):
            if 0 <= steps[0] < len(node.elements):
                return self._follow(node.elements[steps[0]].value, steps[1:], depth - 1)
        return None

    def _of_bindings(
        self, bindings: Sequence[Binding], steps: Steps, depth: int
    ) -> list[Part] | None:
        found: list[Part] = []
        for binding in bindings:
            parts = self._of_binding(binding, steps, depth)
            if not parts:
                return None
            found += parts
        return found

    def _of_binding(self, binding: Binding, steps: Steps, depth: int) -> list[Part] | None:
        value = binding.value
        if binding.how is How.PARAMETER and isinstance(binding.node, cst.Param):
            given = self.functions.given(binding.node)
            parts = [self._follow(one, steps, depth) for one in given]
            if not all(parts):
                return None
            return [part for found in parts for part in found or ()]
        if value is None or binding.starred:
            return None
        if binding.how is How.ASSIGN:
            return self._follow(value, steps, depth)
        if binding.how is How.UNPACKED:
            return self._follow(value, (*binding.path, *steps), depth)
        if binding.how is How.LOOP:
            source, path = self.iteration.source(value, binding.path)
            if source is None:
                return None
            if self.kinds.kind(source) is Kind.LOADER:
                return self._handed_out(source, (*path, *steps), binding.node)
            return self._follow(source, (None, *path, *steps), depth)
        return None

    def _of_item(self, node: cst.Subscript, steps: Steps, depth: int) -> list[Part] | None:
        indices = [element.slice for element in node.slice]
        first = indices[0]
        if len(indices) == 1 and isinstance(first, cst.Index):
            if isinstance(first.value, cst.SimpleString):
                return self._follow(node.value, (str(first.value.evaluated_value), *steps), depth)
            if isinstance(first.value, cst.Integer):
                return self._follow(node.value, (int(first.value.value, 0), *steps), depth)
            if isinstance(first.value, cst.Name) and self.kinds.kind(first.value) is Kind.STRING:
                return self._follow(node.value, (None, *steps), depth)
        if all(self._keeps_storage(index) for index in indices):
            return self._follow(node.value, steps, depth)
        return None

    def _keeps_storage(self, index: cst.BaseSlice) -> bool:
        """Whether an index takes a view of a tensor."""
        if isinstance(index, cst.Slice):
            return True
        value = index.value if isinstance(index, cst.Index) else None
        return isinstance(value, (cst.Integer, cst.Ellipsis)) or (
            value is not None and self.kinds.kind(value) in (Kind.NUMBER, Kind.NOTHING)
        )

    def _of_call(self, node: cst.Call, steps: Steps, depth: int) -> list[Part] | None:
        name = self.names.name(node.func)
        if name == "builtins.next":
            source, path = self.iteration.source(node)
            if source is not None and self.kinds.kind(source) is Kind.LOADER:
                return self._handed_out(source, (*path, *steps), node)
            return None
        if name == "torch.autograd.Variable" and node.args:
            return self._follow(node.args[0].value, steps, depth)
        if name is not None or not isinstance(node.func, cst.Attribute):
            return None
        method = node.func.attr.value
        if method in ("next", "__next__") and not node.args:
            source, path = self.iteration.source(node)
            if source is not None and self.kinds.kind(source) is Kind.LOADER:
                return self._handed_out(source, (*path, *steps), node)
            return None
        if method == "items" and steps[1:2] == (1,):
            return self._follow(node.func.value, (None, *steps[2:]), depth)
        if method == "values" and steps:
            return self._follow(node.func.value, steps, depth)
        if method in _VIEWS:
            return self._follow(node.func.value, steps, depth)
        return None

    def _handed_out(
        self, source: cst.BaseExpression, steps: Steps, place: cst.CSTNode
    ) -> list[Part] | None:
        origin = self.origins.of(source)
        made = self.loaders.made_by(source)
        others = [
            value
            for value in origin.values
            if value not in made and not (isinstance(value, cst.Name) and value.value == "None")
        ]
        if others or not origin.complete:
            return None
        return [Part(loader, steps, place) for loader in made]
