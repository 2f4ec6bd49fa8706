"""Usage: whether every parameter of a network is used in each forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.semantic.calls.instances import WRAPPERS
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.scopes import dotted
from torchlint.semantic.values.known import ValueAnalysis
from torchlint.semantic.values.values import State

_BRANCHES: Final = (
    cst.If, cst.IfExp, cst.Try, cst.While, cst.With, cst.BooleanOperation, cst.Lambda, cst.Break,
    cst.Continue, cst.ListComp, cst.GeneratorExp, cst.DictComp, cst.Yield, cst.Match,
)  # fmt: skip
_SAME: Final = frozenset("to cuda cpu float double train eval".split())
_CONTAINERS: Final = frozenset({"torch.nn.Sequential", "torch.nn.ModuleList"})
_CUTTING: Final = frozenset(
    "detach data no_grad requires_grad requires_grad_ stop_gradient argmax item".split()
)
_PLAIN: Final = (
    cst.BaseNumber, cst.BaseString, cst.BinaryOperation, cst.Comparison, cst.Name,
)  # fmt: skip
_SOMETIMES: Final = frozenset({"torch.nn.AdaptiveLogSoftmaxWithLoss"})
"""Layers that may not use all their parameters in a pass."""


class Usage(ValueAnalysis):
    """Answers for networks that the file shows completely; False if anything is unknown."""

    def is_whole(self, network: cst.BaseExpression) -> bool:
        """Return whether each pass of a network gives every parameter a gradient."""
        if any(
            node.attr.value.startswith("requires_grad") for node in self.tree.all(cst.Attribute)
        ):
            return False
        return self._is_whole(network)

    @memoized(False)
    def _is_whole(self, network: cst.BaseExpression) -> bool:
        owner = self.functions.instance_of(network)
        if owner is not None:
            return self._is_whole_class(owner)
        value = self.values.value_of(network)
        return (
            value.state is State.KNOWN
            and isinstance(value.node, cst.Call)
            and self._is_whole_call(value.node)
        )

    def _is_whole_call(self, call: cst.Call) -> bool:
        """Return whether a call creates such a network: a layer, container or wrapper."""
        name = self.names.name(call.func) or ""
        func = call.func
        if name in _CONTAINERS or name in WRAPPERS:
            wrapped = call.args[:1] if name in WRAPPERS else call.args
            return all(self._is_whole_member(arg) for arg in wrapped)
        if isinstance(func, cst.Attribute) and func.attr.value in _SAME and not name:
            return self._is_whole(func.value)
        if name == "torch.nn.Parameter":
            return True
        made = self.functions.definition(func)
        if isinstance(made, cst.ClassDef):
            return self._is_whole_class(made)
        return (
            name.startswith("torch.nn.")
            and name not in _SOMETIMES
            and name.rpartition(".")[2][:1].isupper()
        )

    def _is_whole_member(self, arg: cst.Arg) -> bool:
        value = arg.value
        if isinstance(value, cst.List):
            return all(
                isinstance(each, cst.Element) and self._is_whole(each.value)
                for each in value.elements
            )
        if isinstance(value, cst.ListComp):
            return self._is_whole(value.elt)
        return not arg.star and self._is_whole(value)

    # -- classes ----------------------------------------------------------------

    @memoized(False)
    def _is_whole_class(self, owner: cst.ClassDef) -> bool:
        """Return whether `forward` uses every layer for its result, without branches."""
        forward = self.functions.method(owner, "forward")
        if self.functions.bases(owner) != ["torch.nn.Module"] or forward is None:
            return False
        if any(next(self.tree.within(forward.body, kind), None) for kind in _BRANCHES):
            return False
        if self._cuts(forward):
            return False
        returned = self.functions.returns(forward)
        if len(returned) != 1 or isinstance(returned[0], (cst.Tuple, cst.Dict, cst.List)):
            return False
        used = {dotted(node) for node in self._made_of(returned[0])}
        return all(path in used for path in self._layers(owner))

    def _layers(self, owner: cst.ClassDef) -> Iterator[str]:
        """Yield the attributes that may hold parameters; fail on one that is not whole."""
        for path, bindings in self.scopes.scope_at(owner).bindings.items():
            if not path.startswith("self."):
                continue
            for binding in bindings:
                value = binding.value
                if value is None or not isinstance(value, cst.Call):
                    if value is not None and not self._is_plain(value):
                        yield ""
                elif self._is_whole_call(value):
                    yield path
                elif not (self.names.name(value.func) or "").startswith(("builtins.", "math.")):
                    yield ""

    def _is_plain(self, value: cst.BaseExpression) -> bool:
        """Return whether a value is known to be no network: a number or text in every call."""
        if any(True for _ in self.tree.within(value, cst.Call)):
            return False
        origins = [self.origins.of(name) for name in self.tree.within(value, cst.Name)]
        return all(
            origin.complete and all(isinstance(each, _PLAIN) for each in origin.values)
            for origin in origins
        )

    def _cuts(self, forward: cst.FunctionDef) -> bool:
        return any(
            node.attr.value in _CUTTING for node in self.tree.within(forward.body, cst.Attribute)
        )

    def _made_of(self, value: cst.BaseExpression) -> Iterator[cst.Attribute]:
        """Yield the attributes that an expression depends on, through the names in it."""
        edge, seen = [value], {id(value)}
        while edge:
            node = edge.pop()
            yield from self.tree.within(node, cst.Attribute)
            for name in self.tree.within(node, cst.Name):
                for binding in self.scopes.reaching(name):
                    inner = binding.value
                    if inner is not None and id(inner) not in seen:
                        seen.add(id(inner))
                        edge.append(inner)
