"""Hosting: networks that stay in host memory, whatever the rest of the file does on a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import Final

import libcst as cst

from torchlint.semantic.calls.instances import SAME
from torchlint.semantic.scope.memo import memoized
from torchlint.semantic.scope.words import names_run
from torchlint.semantic.syntax.methods import last_word, receiver_of
from torchlint.semantic.values.kind import Kind, derived
from torchlint.semantic.values.known import ValueAnalysis

_MOVING: Final = ("cpu", "to", "cuda", "xpu")
_MADE: Final = ("torch.nn.", "torchvision.models.")
_PLAIN_BASES: Final = ("torch.nn.", "builtins.", "abc.", "typing.")
_PARALLEL: Final = ("torch.nn.DataParallel", "torch.nn.parallel.")
_KEEPING: Final = (
    "torch.compile",
    "builtins.",
    "copy.",
    "torch.save",
    "torch.nn.utils.",
    "torch.optim.",
)
"""What gets a network and moves it nowhere."""
_DEFAULTS: Final = frozenset({"torch.set_default_device", "torch.set_default_tensor_type"})
_HOST: Final = re.compile(r"cpu|torch\.[A-Z][A-Za-z0-9]*Tensor")
"""The host, and the types of tensors in its memory."""


class Hosting(ValueAnalysis):
    """Follows networks to where they are made, and the moves of a file to what they move."""

    @memoized(False)
    def stays(self, network: cst.BaseExpression) -> bool:
        """Return whether a network is in host memory: nothing moves it but to the host."""
        made = self._made(network)
        if not made or self.has_default_device or self._moves_unknown:
            return False
        if not all(map(self._is_plain, made)):
            return False
        if any(id(each) in self._moved for each in self._within(network)):
            return False
        return not any(
            id(each) in self._given_away
            # in the script of another module, of which not all is in view
            or (self.scopes.function(each) is None and not self.tree.is_own(each))
            for each in made
        )

    def goes_to_host(self, call: cst.Call) -> bool:
        """Return whether a call of `cpu`, `to` or `cuda` moves to the host."""
        if not isinstance(call.func, cst.Attribute):
            return False
        if call.func.attr.value == "to":
            return any(self._names_host(arg.value) for arg in call.args)
        return call.func.attr.value == "cpu"

    @memoized(False)
    def _names_host(self, node: cst.BaseExpression) -> bool:
        values = self.origins.of(node).known
        return bool(values) and all(map(self._is_host, values))

    def _is_host(self, value: cst.BaseExpression) -> bool:
        if isinstance(value, cst.Call) and self.names.name(value.func) == "torch.device":
            return any(self._names_host(arg.value) for arg in value.args[:1])
        text = value.value.strip("'\"") if isinstance(value, cst.SimpleString) else None
        return _HOST.fullmatch(text or self.names.name(value) or "") is not None

    def moves(self, region: cst.CSTNode) -> bool:
        """Return whether code may put something on a device, or makes it there."""
        return any(map(self.may_move, self.tree.within(region, cst.Call)))

    def may_move(self, call: cst.Call) -> bool:
        """Return whether a call may copy a tensor to a device, or makes it there."""
        func = call.func
        given = self.values.argument_node(call, "device")
        if given is not None and not self._is_elsewhere(given.value):
            return True
        if not isinstance(func, cst.Attribute) or func.attr.value not in _MOVING:
            return False
        if func.attr.value != "to":
            return func.attr.value != "cpu"
        return any(not self._is_elsewhere(arg.value) for arg in call.args)

    def _is_elsewhere(self, node: cst.BaseExpression) -> bool:
        """Return whether an argument of `to` is a type, the host, or the device of a value."""
        if isinstance(node, cst.Attribute) and node.attr.value in ("device", "dtype"):
            return not names_run(last_word(node.value))
        name = self.names.name(node) or ""
        return name.startswith("torch.") or self._names_host(node)

    # -- networks of a file -------------------------------------------------------

    @memoized(())
    def _made(self, network: cst.BaseExpression) -> tuple[cst.Call, ...]:
        """Return the calls that make a network, empty if some are not in view."""
        values = self.origins.of(network).known
        calls = [_unmoved(each) for each in values if isinstance(each, cst.Call)]
        made = [
            self._made(call.args[0].value)
            if self.names.name(call.func) == "torch.compile" and call.args
            else (call,)
            for call in calls
        ]
        return tuple(chain(*made)) if len(calls) == len(values) and all(made) else ()

    def _is_plain(self, made: cst.Call) -> bool:
        """Return whether a call makes a network of code in view that works on no device."""
        name = self.names.name(made.func) or ""
        owner = self.functions.definition(made.func)
        around = self.scopes.class_of(made)
        if around is not None and derived(self.functions.bases(around)) is Kind.MODULE:
            return False
        if any(isinstance(each, cst.With) for each in self.tree.ancestors(made)):
            return False
        if any(self.kinds.kind(arg.value) is Kind.DEVICE for arg in made.args):
            return False
        if not isinstance(owner, cst.ClassDef):
            return name.startswith(_MADE) and not name.startswith(_PARALLEL)
        lines = self.functions.lineage(owner)
        known = {each.name.value for each in lines}
        return all(
            base.startswith(_PLAIN_BASES) or base in known for base in self.functions.bases(owner)
        ) and not any(map(self.moves, lines))

    @cached_property
    def has_default_device(self) -> bool:
        """Whether a line may make new tensors elsewhere than in host memory."""
        return any(
            self.names.name(call.func) in _DEFAULTS
            and not any(self._names_host(arg.value) for arg in call.args[:1])
            for call in self.tree.all(cst.Call)
        )

    # -- moves --------------------------------------------------------------------------

    @cached_property
    def _receivers(self) -> list[cst.BaseExpression]:
        """What the file moves to a device."""
        return [
            call.func.value
            for call in self.tree.all(cst.Call)
            if isinstance(call.func, cst.Attribute)
            and call.func.attr.value in _MOVING
            and self.may_move(call)
        ]

    @cached_property
    def _moved(self) -> set[int]:
        """The calls that make what is moved, and the networks that they are given."""
        return {id(each) for node in self._receivers for each in self._within(node)}

    def _within(self, node: cst.BaseExpression) -> Iterator[cst.Call]:
        """Yield the calls that make a network, and the networks that it is made of."""
        seen: set[int] = set()
        edge = [node]
        while edge:
            for value in self.origins.of(edge.pop()).values:
                made = _unmoved(value) if isinstance(value, cst.Call) else None
                if made is not None and id(made) not in seen:
                    seen.add(id(made))
                    yield made
                    edge += [arg.value for arg in made.args]

    @cached_property
    def _moves_unknown(self) -> bool:
        """Whether the file moves a network of which it does not show where it is made."""
        return any(not self._made(node) and self._may_be_network(node) for node in self._receivers)

    def _may_be_network(self, moved: cst.BaseExpression) -> bool:
        """Return whether what is moved may be a network, or a part or the weights of one."""
        if self.kinds.kind(moved) is Kind.MODULE:
            return True
        if isinstance(moved, cst.Attribute) and moved.attr.value == "data":
            return True
        call = self.tree.parent(self.tree.parent(moved))
        holder = self.tree.parent(call)
        return isinstance(holder, (cst.Expr, cst.Lambda))

    @cached_property
    def _given_away(self) -> set[int]:
        """The calls that make networks which code out of view gets, and may move."""
        return {
            id(made)
            for call in self.tree.all(cst.Call)
            if call.args and self._is_unseen(call)
            for arg in call.args
            if self.kinds.kind(arg.value) is Kind.MODULE
            for made in self._within(arg.value)
        }

    def _is_unseen(self, call: cst.Call) -> bool:
        if (self.names.name(call.func) or "").startswith(_KEEPING):
            return False
        return self.functions.callee(call) is None and not self.functions.definition(call.func)


def _unmoved(call: cst.Call) -> cst.Call:
    """Return the call that makes a network: that of `Net().to(device)`, or of its compiled form."""
    while isinstance(inner := receiver_of(call, *SAME), cst.Call):
        call = inner
    return call
