"""Tensors created on the host, with the views and conversions that follow."""

from __future__ import annotations

from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Kind, Script, State

__all__ = ["Made", "made"]

_FILLED: Final = frozenset("zeros ones full empty eye arange linspace logspace".split())
_LIKE: Final = frozenset(
    "zeros_like ones_like full_like empty_like rand_like randn_like randint_like".split()
)
_RANDOM: Final = frozenset(
    "rand randn randint randperm normal rand_like randn_like randint_like".split()
)
_DRAWING: Final = frozenset("uniform_ normal_ random_ bernoulli_ exponential_".split())
_KEEPING: Final = frozenset(
    (
        "view reshape unsqueeze squeeze expand repeat permute transpose t flatten long int float "
        "double half bool bfloat16 fill_ zero_ contiguous type"
    ).split()
)
_INNER: Final = ("torch.tril", "torch.triu", "torch.autograd.Variable")
_PINNING_DOWN: Final = frozenset("device out generator pin_memory requires_grad layout".split())
_ROUNDED: Final = frozenset("linspace logspace".split())
_DENSE: Final = (Kind.TENSOR, Kind.LOSS, Kind.NDARRAY)


class Made(NamedTuple):
    """The call that creates a tensor, and whether its values are random or rounded."""

    site: CallSite
    last: str
    random: bool
    rounds: bool


def made(
    script: Script, node: cst.BaseExpression, random: bool = False, rounds: bool = False
) -> Made | None:
    """Return the call that creates a tensor on the host, behind views, dtypes and numbers."""
    if isinstance(node, cst.BinaryOperation):
        return _scaled(script, node, random, rounds)
    if not isinstance(node, cst.Call):
        return None
    name = script.name(node.func)
    if name is None:
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        if method not in _KEEPING and method not in _DRAWING:
            return None
        assert isinstance(node.func, cst.Attribute)
        return made(script, node.func.value, random or method in _DRAWING, rounds)
    if name in _INNER and node.args and not _is_leaf(script, node):
        return made(script, node.args[0].value, random, rounds)
    site = script.call(node)
    module, _, last = name.rpartition(".")
    if module != "torch" or site.has_splat or not _could_be_made(script, site, last):
        return None
    words = {arg.keyword.value for arg in node.args if arg.keyword is not None}
    if words & _PINNING_DOWN or (last == "empty" and site.argument("size", 0).equals(0)):
        return None
    return Made(site, last, random or last in _RANDOM, rounds or _rounds(script, site, last))


def _scaled(script: Script, node: cst.BinaryOperation, random: bool, rounds: bool) -> Made | None:
    """Return the tensor operand of arithmetic with numbers."""
    if not isinstance(node.operator, (cst.Add, cst.Subtract, cst.Multiply, cst.Divide)):
        return None
    rounds = rounds or isinstance(node.operator, cst.Divide)
    for inner, other in ((node.left, node.right), (node.right, node.left)):
        if script.is_number(other):
            return made(script, inner, random, rounds)
    return None


def _rounds(script: Script, site: CallSite, last: str) -> bool:
    """Return whether the values depend on the device's rounding."""
    return last in _ROUNDED or (
        last == "arange"
        and any(isinstance(script.value_of(a.value).node, cst.Float) for a in site.node.args)
    )


def _is_leaf(script: Script, node: cst.Call) -> bool:
    return script.call(node).argument("requires_grad", 1).state is not State.ABSENT


def _could_be_made(script: Script, site: CallSite, last: str) -> bool:
    """Return whether a factory function takes `device` and avoids a copy with it."""
    args = site.node.args
    if last == "normal":
        return bool(args) and all(script.kind(arg.value) is not Kind.TENSOR for arg in args)
    if last in _LIKE:
        return bool(args) and bool(script.parts.of(args[0].value))
    if last == "tensor":
        return bool(args) and _is_data_of_step(script, args[0].value)
    return last in _FILLED or last in _RANDOM


def _is_data_of_step(script: Script, data: cst.BaseExpression) -> bool:
    """Return whether data is not a list of constants and, as far as visible, no array or tensor."""
    if script.array(data) is not None or script.kind(data) in _DENSE:
        return False
    if not isinstance(data, (cst.List, cst.Tuple)) and script.value_of(data).is_literal:
        return script.kind(data) is Kind.NUMBER
    members = script.origins.of(data, (None,)).values
    return not any(_is_dense(script, each) for each in members) and (
        not members or not all(_is_constant(script, each) for each in members)
    )


def _is_dense(script: Script, node: cst.BaseExpression) -> bool:
    return script.array(node) is not None or script.kind(node) in _DENSE


def _is_constant(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an element is a literal number, or a list of such."""
    value = script.value_of(node)
    if isinstance(value.node, (cst.List, cst.Tuple)):
        members = value.node.elements
        return all(script.answer(_is_constant, each.value, False) for each in members)
    return value.is_literal
