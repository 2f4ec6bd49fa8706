"""Call extras: what calling a network runs besides its forward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst

from torchlint.semantic.scope.scopes import How, dotted
from torchlint.semantic.values.known import ValueAnalysis

_REGISTER: Final = frozenset(
    "register_forward_hook register_forward_pre_hook register_full_backward_hook "
    "register_full_backward_pre_hook register_backward_hook".split()
)
_ADDING: Final = frozenset(
    "weight_norm spectral_norm fully_shard checkpoint_wrapper l1_unstructured "
    "random_unstructured ln_structured".split()
)
"""Functions of torch whose result, or whose argument, gets hooks."""
_PARTS: Final = frozenset("modules children named_modules named_children".split())


class CallExtras(ValueAnalysis):
    """Finds the networks that this file gives hooks.

    A wrapper such as `DataParallel` has its own forward, and `forward` of it is not less.
    """

    def has(self, network: cst.BaseExpression) -> bool:
        """Return whether the file shows that calling a network runs more than its forward."""
        path, values = _path(network), self.origins.of(network).values
        if path and any(_is_part(each, path) for each in self._paths):
            return True
        return any(self._adds(value) for value in values)

    @cached_property
    def _paths(self) -> frozenset[str]:
        """The paths of the networks that get hooks; a `.` behind one means all its parts."""
        return frozenset(path for call in self.tree.all(cst.Call) for path in self._given_to(call))

    def _given_to(self, call: cst.Call) -> Iterator[str]:
        func = call.func
        if self._adds(call) and call.args:
            yield dotted(call.args[0].value)
        elif (
            isinstance(func, cst.Attribute)
            and func.attr.value in _REGISTER
            and self.names.name(func) is None
        ):
            yield dotted(func.value)
            yield from self._all_parts(func.value)

    def _all_parts(self, node: cst.BaseExpression) -> Iterator[str]:
        """Yield the path of the network whose parts a loop variable stands for."""
        for binding in self.scopes.reaching(node):
            if binding.how is not How.LOOP or binding.value is None:
                continue
            source = binding.value
            if (
                isinstance(source, cst.Call)
                and isinstance(source.func, cst.Attribute)
                and source.func.attr.value in _PARTS
            ):
                source = source.func.value
            if dotted(source):
                yield f"{dotted(source)}."

    def _adds(self, value: cst.BaseExpression) -> bool:
        if not isinstance(value, cst.Call):
            return False
        name = self.names.name(value.func) or ""
        return name.startswith("torch.") and name.rpartition(".")[2] in _ADDING


def _path(network: cst.BaseExpression) -> str:
    """Return the path of a network, an item of a list being a part of the list."""
    if isinstance(network, cst.Subscript):
        whole = _path(network.value)
        return f"{whole}.0" if whole else ""
    return dotted(network)


def _is_part(given: str, path: str) -> bool:
    """Return whether a network at a path has something that was given at another path."""
    return given == path or (given.endswith(".") and f"{path}.".startswith(given))
