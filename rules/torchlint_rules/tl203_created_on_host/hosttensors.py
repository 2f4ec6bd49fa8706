"""Tensors created on the host, with the views and conversions that follow."""

from __future__ import annotations

from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, Factory, Kind, Script, State, method_of, receiver_of
from torchlint_rules.tl203_created_on_host.drawnarrays import TYPES, drawn_array, is_chosen

_DRAWING: Final = frozenset("uniform_ normal_ random_ bernoulli_ exponential_".split())
_DRAWN: Final = frozenset({"sample", "rsample"})
"""What draws from a distribution, where its parameters are."""
_KEEPING: Final = frozenset(
    "view reshape unsqueeze squeeze expand repeat permute transpose t flatten long int float "
    "double half bool bfloat16 fill_ zero_ contiguous type".split()
)
INNER: Final = (
    "torch.tril", "torch.triu", "torch.autograd.Variable", "einops.rearrange", "einops.repeat",
)  # fmt: skip
_OF_LISTS: Final = frozenset("tensor as_tensor LongTensor IntTensor FloatTensor Tensor".split())
_PINNING_DOWN: Final = frozenset("device out generator pin_memory layout".split())
_SIZED: Final = frozenset("zeros ones empty randn rand".split())
"""What takes any number of sizes."""
_SAME: Final = ("builtins.staticmethod", "builtins.classmethod")
"""Decorators that change nothing of what a method returns."""
_KEPT: Final = ("None", "...")
_ROUNDED: Final = frozenset("linspace logspace".split())


_FILLING: Final = _DRAWING | {"fill_", "zero_"}
COUNTED: Final = "counted"
"""What `last` is for the numbers of a `range`."""
REPEATED: Final = "repeated"
"""What `last` is for a list of one number, many times."""
ARRAY: Final = "array"
"""What `last` is for numbers that NumPy draws."""


class Made(NamedTuple):
    """The call that creates a tensor, and whether its values are random or rounded."""

    site: CallSite
    last: str
    random: bool
    rounds: bool
    legacy: bool = False
    """Whether it is an old constructor, or of NumPy, which take no `device`."""
    apart: bool = False
    """Whether several calls make it, or a list that counts: one `device=` is not enough."""


def made(
    script: Script, node: cst.BaseExpression, random: bool = False, rounds: bool = False
) -> Made | None:
    """Return the call that creates a tensor on the host, behind views, dtypes and numbers."""
    if isinstance(node, cst.BinaryOperation):
        return _scaled(script, node, random, rounds)
    if isinstance(node, cst.Comparison):
        return _compared(script, node, random, rounds)
    if isinstance(node, cst.Subscript) and _only_shapes(script, node):
        return made(script, node.value, random, rounds)
    if not isinstance(node, cst.Call):
        return None
    drawn = drawn_array(script, node)
    if drawn is not None:
        return Made(drawn, ARRAY, True, rounds, legacy=True)
    listed = _listed(script, node)
    if listed is not None:
        return Made(script.calls.at(node), listed, random, rounds, apart=True)
    name = script.name(node.func)
    if name is None:
        method = method_of(node)
        if method in _DRAWN and _is_of_numbers(script, node):
            return Made(script.calls.at(node), method, True, rounds)
        if method not in _KEEPING and method not in _DRAWING:
            return None
        return made(script, receiver_of(node) or node, random or method in _DRAWING, rounds)
    if name in INNER and node.args and not is_leaf(script, node):
        return made(script, node.args[0].value, random, rounds)
    site = script.calls.at(node)
    module, _, last = name.rpartition(".")
    if module == "torch" and last in TYPES and (len(node.args) > 1 or _is_filled(script, node)):
        return Made(site, last, random, rounds, legacy=True)
    factory = script.names.factory(node)
    if factory is None or _hides_options(site, last) or not _could_be_made(script, site, factory):
        return None
    words = {arg.keyword.value for arg in node.args if arg.keyword is not None}
    if words & _PINNING_DOWN or (last == "empty" and site.argument("size", 0).equals(0)):
        return None
    return Made(site, last, random or factory.draws, rounds or _rounds(script, site, last))


def _only_shapes(script: Script, node: cst.Subscript) -> bool:
    """Return whether a subscript adds dimensions or cuts: `[None, :4]`."""
    parts = [each.slice for each in node.slice]
    return all(isinstance(each, cst.Slice) or script.code(each) in _KEPT for each in parts)


def _listed(script: Script, call: cst.Call) -> str | None:
    """Return which list of numbers a call copies into a tensor that the device could fill."""
    module, _, last = (script.name(call.func) or "").rpartition(".")
    takes = module == "torch" and last in _OF_LISTS
    if (
        not call.args
        or script.calls.at(call).given("device")
        or not (takes or is_chosen(script, call))
    ):
        return None
    data = call.args[0].value
    if _counts(script, data):
        return COUNTED
    return REPEATED if _repeats(script, data) else None


def _counts(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether numbers are those of a `range`, as a list, or of several joined."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
        return _counts(script, node.left) and _counts(script, node.right)
    if isinstance(node, cst.ListComp):
        same = isinstance(node.elt, cst.Name) and node.elt.deep_equals(node.for_in.target)
        return same and not node.for_in.ifs and _counts(script, node.for_in.iter)
    name = script.name(node.func) if isinstance(node, cst.Call) else None
    if isinstance(node, cst.Call) and name == "builtins.list" and len(node.args) == 1:
        return _counts(script, node.args[0].value)
    return name == "builtins.range"


def _repeats(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a list holds one number as often as another says: `[0] * n`, `[[0] * n]`."""
    if isinstance(node, cst.List) and len(node.elements) == 1:
        return _repeats(script, node.elements[0].value)
    if isinstance(node, cst.ListComp):
        return _is_one(script, node.elt) and _counts(script, node.for_in.iter)
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Multiply):
        return False
    often = script.values.value_of(node.right)
    return isinstance(node.left, cst.List) and _is_one(script, node.left) and not often.is_literal


def _is_one(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a value is a number or truth value that the program gives, or lists it."""
    if isinstance(node, cst.List) and len(node.elements) == 1:
        return _is_one(script, node.elements[0].value)
    settings = isinstance(node, cst.Attribute) and script.kind(node) in (Kind.NUMBER, Kind.UNKNOWN)
    return settings or script.values.value_of(node).is_literal


def is_plain(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a call gets what a function returns as it is written."""
    marks = script.names.marks(function)
    return all(each in _SAME for each in marks) and not script.functions.is_generator(function)


def _hides_options(site: CallSite, last: str) -> bool:
    """Return whether a splat may pass more than the sizes of a tensor."""
    return any(arg.star == "**" or (arg.star and last not in _SIZED) for arg in site.node.args)


def _is_of_numbers(script: Script, call: cst.Call) -> bool:
    """Return whether a distribution whose parameters are numbers draws, so on the host."""
    value = script.values.value_of(script.calls.at(call).receiver).node
    if not isinstance(value, cst.Call) or not value.args:
        return False
    name = script.name(value.func) or ""
    return name.startswith("torch.distributions.") and all(
        script.values.numbers.is_number(arg.value) or made(script, arg.value) is not None
        for arg in value.args
    )


def _is_filled(script: Script, call: cst.Call) -> bool:
    """Return whether the memory of an old constructor is filled at once (`.fill_(1.0)`)."""
    func = script.tree.parent(call)
    return (
        isinstance(func, cst.Attribute)
        and func.attr.value in _FILLING
        and isinstance(script.tree.parent(func), cst.Call)
    )


def _scaled(script: Script, node: cst.BinaryOperation, random: bool, rounds: bool) -> Made | None:
    """Return the tensor operand of arithmetic with numbers."""
    if not isinstance(node.operator, (cst.Add, cst.Subtract, cst.Multiply, cst.Divide)):
        return None
    rounds = rounds or isinstance(node.operator, cst.Divide)
    for inner, other in ((node.left, node.right), (node.right, node.left)):
        if script.values.numbers.is_number(other):
            return made(script, inner, random, rounds)
    return None


def _compared(script: Script, node: cst.Comparison, random: bool, rounds: bool) -> Made | None:
    """Return the tensor that is compared with a number."""
    single = len(node.comparisons) == 1
    if not single or not script.values.numbers.is_number(node.comparisons[0].comparator):
        return None
    return made(script, node.left, random, rounds)


def _rounds(script: Script, site: CallSite, last: str) -> bool:
    """Return whether the values depend on the device's rounding."""
    return last in _ROUNDED or (
        last == "arange"
        and any(isinstance(script.values.value_of(a.value).node, cst.Float) for a in site.node.args)
    )


def is_leaf(script: Script, node: cst.Call) -> bool:
    """Return whether a `Variable` asks for a gradient."""
    if script.name(node.func) != "torch.autograd.Variable":
        return False
    return script.calls.at(node).argument("requires_grad", 1).state is not State.ABSENT


def _could_be_made(script: Script, site: CallSite, factory: Factory) -> bool:
    """Return whether a factory function takes `device` and avoids a copy with it."""
    args = site.node.args
    if factory.word == "normal":
        return bool(args) and all(script.kind(arg.value) is not Kind.TENSOR for arg in args)
    if not factory.like or not args:
        return not factory.like
    like = args[0].value
    return script.values.placement.on_host(like) or bool(script.loaders.parts.of(like))
