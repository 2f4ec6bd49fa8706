"""Drawing: the loaders that loops, iterators and generators take their batches from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import libcst as cst

from torchlint.semantic.calls.functions import Analysis, Functions
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import Binding, How
from torchlint.semantic.syntax.methods import container_of, receiver_of
from torchlint.semantic.values.kind import Kind
from torchlint.semantic.values.origins import Origins

MOVES: Final = ("to", "cuda")
"""The methods that copy a tensor to a device."""


class Drawing(Analysis):
    """Follows what batches are drawn from back to loaders."""

    def __init__(
        self, functions: Functions, origins: Origins, kind: Callable[[cst.CSTNode], Kind]
    ) -> None:
        super().__init__(functions)
        self.origins, self.iteration, self.kind = origins, origins.iteration, kind

    def loader(self, value: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the loader that a loop over `value`, or `next(value)`, takes its batches from."""
        for source in self.iteration.iterated(value):
            if self.kind(source) is Kind.LOADER or self._is_iterator(source):
                return source
            callees = self.functions.callees(source) if isinstance(source, cst.Call) else ()
            for function in filter(self.functions.is_generator, callees):
                if (found := self._handed_on(function)) is not None:
                    return found
        return None

    @memoized(False)
    def _is_iterator(self, node: cst.BaseExpression) -> bool:
        """Return whether a name stands for what `iter(loader)` gives, wherever it was called."""
        named = isinstance(node, (cst.Name, cst.Attribute))
        made = self.origins.of(node).known if named else ()
        return bool(made) and all(
            isinstance(each, cst.Call)
            and self.names.name(each.func) == "builtins.iter"
            and self.loader(each) is not None
            for each in made
        )

    @memoized(None)
    def _handed_on(self, generator: cst.FunctionDef) -> cst.BaseExpression | None:
        """Return the loader whose batches a generator yields: `yield from loader`."""
        for node in self.functions.own(generator.body, cst.Yield):
            given = node.value.item if isinstance(node.value, cst.From) else node.value
            drawn = [] if given is None else [given]
            if isinstance(given, cst.Name) and not isinstance(node.value, cst.From):
                bindings = self.scopes.reaching(given)
                drawn = [each.value for each in bindings if each.how is How.LOOP and each.value]
            for each in drawn:
                if (found := self.loader(each)) is not None:
                    return found
        return None

    @memoized(True)
    def is_drawn(self, node: cst.BaseExpression) -> bool:
        """Return whether a value is what a loop goes through or `next` gives, or a part of that."""
        node = container_of(node)
        if isinstance(node, cst.Call):
            moved = receiver_of(node, *MOVES)
            return self.iteration.draws(node) or (moved is not None and self.is_drawn(moved))
        bindings = self.scopes.reaching(node)
        return bool(bindings) and all(
            each.how is How.LOOP or self._is_given(each) for each in bindings
        )

    def _is_given(self, binding: Binding) -> bool:
        """Return whether a name holds what is drawn, or all calls hand that in."""
        held = _held(binding)
        given = [] if held is None else [held]
        if binding.parameter is not None:
            given = [*self.functions.given(binding.parameter)]
        return bool(given) and all(map(self.is_drawn, given))

    def moves_itself(self, binding: Binding) -> bool:
        """Return whether a name gets its own value, copied to a device: `x = x.cuda()`."""
        moved = receiver_of(_held(binding), *MOVES)
        return isinstance(moved, cst.Name) and moved.value == binding.name


def _held(binding: Binding) -> cst.BaseExpression | None:
    """Return what a name is assigned, alone, as a part of it or in a tuple that is written out."""
    value = binding.value if binding.how in (How.ASSIGN, How.UNPACKED) else None
    parts = value.elements if isinstance(value, (cst.Tuple, cst.List)) else ()
    at = binding.path[0] if binding.path else len(parts)
    return parts[at].value if at < len(parts) else value
