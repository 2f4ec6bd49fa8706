"""Harmful uses of a tensor's `.data`, and whether a tensor has an autograd graph at all."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Binding,
    Edit,
    Fix,
    Grad,
    How,
    Impact,
    Kind,
    Script,
    Span,
    method_of,
    receiver_of,
)

VARIABLE: Final = "torch.autograd.Variable"
_CONSTRUCTORS: Final = frozenset(
    "tensor as_tensor from_numpy Tensor FloatTensor LongTensor DoubleTensor IntTensor "
    "ByteTensor HalfTensor BoolTensor".split()
)
_SAME: Final = frozenset(
    "cuda cpu to type type_as float double half long int bool view reshape squeeze unsqueeze "
    "expand transpose permute t contiguous clone fill_ normal_ uniform_ zero_ bernoulli_ "
    "repeat random_ pin_memory to_dense flatten sum mean".split()
)
_CUT: Final = re.compile(r"detach|new|new_(tensor|zeros|ones|full|empty)")


def wraps(script: Script, call: cst.Call) -> bool:
    """Return whether a `Variable` only wraps its argument."""
    value = script.calls.at(call).given("requires_grad")
    return call.args[0].keyword is None and (
        value is None or script.values.value_of(value.value).equals(False)
    )


def without_graph(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a tensor is created in the call, comes from a loader or holds integers."""
    if script.values.dtypes.is_integral(node) is True:
        return True
    if isinstance(node, cst.UnaryOperation):
        return script.answer(without_graph, node.expression, False)
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        wants = any(
            isinstance(each.value, cst.Name) and each.value.value == node.value
            for word in ("requires_grad", "requires_grad_")
            for each in script.functions.attributes(word)
        )
        return bool(bindings) and not wants and all(_plain_binding(script, b) for b in bindings)
    if isinstance(node, cst.Subscript):
        return script.answer(without_graph, node.value, False)
    if isinstance(node, cst.Attribute):
        return node.attr.value == "data" and script.kind(node.value) in (Kind.TENSOR, Kind.LOSS)
    if not isinstance(node, cst.Call):
        return False
    name = script.name(node.func)
    if name == VARIABLE:
        return wraps(script, node)
    if name is not None:
        factory = script.names.factory(node)
        built = name.startswith("torch.") and name.rpartition(".")[2] in _CONSTRUCTORS
        made = built or (factory is not None and not factory.like)
        return made and script.calls.at(node).given("requires_grad") is None
    if isinstance(node.func, cst.Name):
        return _is_type(script, node.func)
    if _CUT.fullmatch(method_of(node)):
        return script.calls.at(node).given("requires_grad") is None
    same = receiver_of(node, *_SAME)
    return same is not None and script.answer(without_graph, same, False)


def _plain_binding(script: Script, binding: Binding) -> bool:
    """Return whether the value of a name has no graph."""
    value = binding.value
    if binding.how is How.LOOP:
        return _loaded(script, value, binding.path)
    if value is None or binding.how not in (How.ASSIGN, How.UNPACKED):
        return False
    unrecorded = isinstance(value, cst.Call) and script.values.gradients.grad(value) is Grad.OFF
    return unrecorded or script.answer(without_graph, value, False)


def _loaded(script: Script, value: cst.BaseExpression | None, path: tuple[int, ...]) -> bool:
    if value is None:
        return False
    source, _ = script.values.iteration.source(value, path)
    return source is not None and script.kind(source) is Kind.LOADER


def _is_type(script: Script, name: cst.Name) -> bool:
    """Return whether a name is a tensor type, of one device or another."""
    made = script.values.value_of(name).node
    if not isinstance(made, cst.IfExp):
        return False
    return all(
        (script.name(each) or "").startswith("torch.") and script.code(each).endswith("Tensor")
        for each in (made.body, made.orelse)
    )


# -- data ------------------------------------------------------------------------


class Misuse(NamedTuple):
    """A `.data` that fails or may make gradients wrong."""

    message: str
    impact: Impact
    fix: Fix | None = None


def misuse(script: Script, node: cst.Attribute) -> Misuse | None:
    """Return what is wrong with a `.data`, None where nothing can be."""
    tensor, holder = node.value, script.tree.parent(node)
    what = script.tree.brief(tensor)
    if isinstance(holder, cst.Subscript) and _is_loss_read_as_a_vector(script, tensor, holder):
        message = f"`{what}.data[0]` fails since torch 1.0: use `{what}.item()`"
        return Misuse(message, "high", _as_item(script, tensor, holder))
    if script.values.gradients.grad(node) is Grad.OFF or not script.evaluations.recorded.of(tensor):
        return None
    if script.values.writes.at(node) is not None:
        if _follows_backward(script, node):
            return None
        return Misuse(
            f"`{what}.data` bypasses autograd: the backward pass may use numbers that were "
            f"overwritten; compute a new tensor from `{what}` instead",
            "medium",
        )
    name = _written_name(script, node)
    if name is None:
        return None
    return Misuse(
        f"`{name}` shares its memory with `{what}`, and writing to it bypasses autograd: use "
        f"`{what}.detach().clone()`",
        "medium",
    )


def _follows_backward(script: Script, node: cst.Attribute) -> bool:
    """Return whether the function around a node has gone backward, as it does not again."""
    function = script.scopes.function(node)
    calls = script.functions.own(function.body, cst.Call) if function is not None else ()
    places = [script.tree.order(call) for call in calls if script.loops.goes_backward(call)]
    return bool(places) and max(places) < script.tree.order(node)


def _is_loss_read_as_a_vector(
    script: Script, tensor: cst.BaseExpression, item: cst.Subscript
) -> bool:
    """Return whether an item of a loss is read with the index 0, as before torch 0.4."""
    if script.kind(tensor) is not Kind.LOSS or script.values.key(item) != 0:
        return False
    several = script.values.reductions.is_one_number(tensor) is False
    return not several and script.scopes.stored(item) is None


def _as_item(script: Script, tensor: cst.BaseExpression, item: cst.Subscript) -> Fix | None:
    """Return the fix that reads a loss as a number, None where it may hold several.

    Nor where a method of its first item is called.
    """
    place = Span(script.span(tensor).end, script.span(item).end)
    plain = script.tree.source.text[place.start : place.end] == ".data[0]"
    used = isinstance(script.tree.parent(item), cst.Attribute)
    if not plain or used or script.values.reductions.is_one_number(tensor) is not True:
        return None
    because = "reads a number where a loss of shape [1] gave a tensor"
    return Fix.close("Read the number", (Edit(place, ".item()"),), because=because)


def _written_name(script: Script, node: cst.Attribute) -> str | None:
    """Return the name that a `.data` is given, if a tensor of that name is written to later."""
    assign = script.tree.parent(node)
    if not isinstance(assign, cst.Assign) or not isinstance(assign.targets[0].target, cst.Name):
        return None
    name = assign.targets[0].target.value
    for use in script.tree.spelled(name):
        if script.values.writes.at(use) is not None and any(
            each.value is node for each in script.scopes.reaching(use)
        ):
            return name
    return None
