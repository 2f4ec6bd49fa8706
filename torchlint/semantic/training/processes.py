"""Processes: networks and collectives of scripts that train in several processes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

import libcst as cst

from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.scope.words import words
from torchlint.semantic.syntax.methods import choices_of
from torchlint.semantic.values.calls import Calls
from torchlint.semantic.values.known import KnownValues, ValueAnalysis

_DDP: Final = "torch.nn.parallel.DistributedDataParallel"
_HIDING: Final = frozenset({"torch.compile", "torch.nn.DataParallel"})


class Wrapped(Enum):
    """Whether a network averages its gradients over processes."""

    YES = auto()
    MAYBE = auto()
    NO = auto()


class Processes(ValueAnalysis):
    """Finds the networks wrapped in `DistributedDataParallel`."""

    def __init__(self, values: KnownValues, calls: Calls) -> None:
        super().__init__(values)
        self.calls = calls

    def wraps(self) -> list[cst.Call]:
        """Return the calls that wrap a network in torch's `DistributedDataParallel`."""
        return [call.node for call in self.calls.of(_DDP)]

    @property
    def has_wraps(self) -> bool:
        """Whether any call of the file wraps a network for several processes."""
        return bool(self.wraps()) or any(map(self._is_own_wrap, self.tree.all(cst.Call)))

    def made_by(self, network: cst.BaseExpression) -> list[cst.Call]:
        """Return the `DistributedDataParallel` calls that a network can come from."""
        values = self.origins.of(network).values
        return [call for value in values if (call := self._wrap_in(value)) is not None]

    def wrapped(self, network: cst.BaseExpression) -> Wrapped:
        """Return whether a network averages its gradients over processes."""
        if self._is_inner(network):
            return Wrapped.NO
        origin = self.origins.of(network)
        found = [self._wrap_in(value) is not None for value in origin.values]
        if not any(found):
            return Wrapped.NO
        return Wrapped.YES if origin.complete and all(found) else Wrapped.MAYBE

    @memoized(False)
    def _is_inner(self, network: cst.BaseExpression) -> bool:
        """Return whether a value may be the network inside: `net.module if ddp else net`."""
        if isinstance(network, cst.Attribute) and network.attr.value == "module":
            return True
        held = (self.functions.held(each) for each in self.functions.bindings(network))
        values = [*choices_of(network), *(value for each in held for value in each)]
        return any(map(self._is_inner, values))

    def _wrap_in(self, value: cst.BaseExpression) -> cst.Call | None:
        """Return the wrapping call that an expression is, or that it returns."""
        at: cst.BaseExpression = value
        while isinstance(at, cst.Call):
            name = self.names.name(at.func)
            if name == _DDP or self._is_own_wrap(at):
                return at
            if name in _HIDING and at.args:
                at = at.args[0].value
            elif isinstance(at.func, cst.Attribute) and name is None:
                at = at.func.value
            else:
                return None
        return None

    def _is_own_wrap(self, call: cst.Call) -> bool:
        """Return whether the name of a project helper says that it wraps (`smart_DDP`)."""
        name = self.names.name(call.func) or ""
        last = name.rpartition(".")[2]
        imported = name.startswith(".") or name.partition(".")[0] in ("utils", "src", "lib")
        return imported and "ddp" in words(last)

    def networks(self, region: cst.CSTNode) -> Iterator[cst.BaseExpression]:
        """Yield the wrapped networks that code runs, or passes to code that may run them."""
        for call in self.functions.own(region, cst.Call):
            if (self.names.name(call.func) or "").startswith("builtins."):
                continue
            handed = [call.func, *(arg.value for arg in call.args if not arg.star)]
            for node in handed:
                if isinstance(node, (cst.Name, cst.Attribute)) and dotted(node):
                    if self.wrapped(node) is not Wrapped.NO:
                        yield node
