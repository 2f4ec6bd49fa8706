"""Uses of a tensor's `.data`, and whether a tensor has an autograd graph at all."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.api import Binding, Grad, How, Kind, Script

__all__ = ["VARIABLE", "hidden", "without_graph", "wraps"]

VARIABLE: Final = "torch.autograd.Variable"
_LEAVES: Final = ("weight", "bias", "grad", "running_mean", "running_var")
_CHANGES: Final = frozenset(
    "add_ sub_ mul_ div_ copy_ zero_ fill_ normal_ uniform_ clamp_ lerp_ addcdiv_ addcmul_".split()
)
_PARAMETERS: Final = re.compile(r"parameters\(|\[[\"']params[\"']\]|state_dict\(")
_FACTORIES: Final = frozenset(
    (
        "tensor as_tensor from_numpy zeros ones full empty arange linspace eye rand randn randint "
        "randperm normal Tensor FloatTensor LongTensor DoubleTensor IntTensor ByteTensor "
        "HalfTensor BoolTensor"
    ).split()
)
_SAME: Final = frozenset(
    (
        "cuda cpu to type type_as float double half long int bool view reshape squeeze unsqueeze "
        "expand transpose permute t contiguous clone fill_ normal_ uniform_ zero_ bernoulli_ "
        "repeat random_ pin_memory to_dense flatten sum mean"
    ).split()
)
_OF_TENSORS: Final = frozenset("cpu cuda numpy item clone norm".split())
_RECORDS: Final = frozenset(
    (
        "self cls data dataset set batch sample samples example item field mnist cifar train "
        "test val valid pack packed sequence seq graph graphs node nodes edge edges message msg "
        "response sparse rnn event storage array xarray"
    ).split()
)
"""Words for objects with their own `data`: records, packed sequences, datasets."""
_METADATA: Final = frozenset(
    "size shape dim ndimension numel nelement device dtype is_cuda get_device type new".split()
)
_TYPES: Final = ("builtins.isinstance", "builtins.type")
_CUT: Final = re.compile(r"detach|new|new_(tensor|zeros|ones|full|empty)")
_DEPTH: Final = 8


def wraps(script: Script, call: cst.Call) -> bool:
    """Return whether a `Variable` only wraps its argument."""
    value = script.call(call).given("requires_grad", 1)
    return call.args[0].keyword is None and (
        value is None or script.value_of(value.value).equals(False)
    )


def without_graph(script: Script, node: cst.BaseExpression, depth: int = _DEPTH) -> bool:
    """Return whether a tensor is created in the call, comes from a loader or holds integers."""
    if not depth:
        return False
    if script.is_integral(node) is True:
        return True
    if isinstance(node, cst.UnaryOperation):
        return without_graph(script, node.expression, depth - 1)
    if isinstance(node, cst.Name):
        bindings = script.scopes.reaching(node)
        wants = script.mentions(f"{node.value}.requires_grad")
        return (
            bool(bindings) and not wants and all(_plain_binding(script, b, depth) for b in bindings)
        )
    if isinstance(node, cst.Subscript):
        return without_graph(script, node.value, depth - 1)
    if isinstance(node, cst.Attribute):
        return node.attr.value == "data" and script.kind(node.value) in (Kind.TENSOR, Kind.LOSS)
    if not isinstance(node, cst.Call):
        return False
    name = script.name(node.func)
    if name == VARIABLE:
        return wraps(script, node)
    if name is not None:
        made = name.startswith("torch.") and name.rpartition(".")[2] in _FACTORIES
        return made and script.call(node).given("requires_grad") is None
    if isinstance(node.func, cst.Name):
        return _is_type(script, node.func)
    func = node.func
    if not isinstance(func, cst.Attribute):
        return False
    if _CUT.fullmatch(func.attr.value):
        return script.call(node).given("requires_grad") is None
    return func.attr.value in _SAME and without_graph(script, func.value, depth - 1)


def _plain_binding(script: Script, binding: Binding, depth: int) -> bool:
    """Return whether the value of a name has no graph."""
    value = binding.value
    if binding.how is How.LOOP:
        return _loaded(script, value, binding.path)
    if value is None or binding.how not in (How.ASSIGN, How.UNPACKED):
        return False
    unrecorded = isinstance(value, cst.Call) and script.grad(value) is Grad.OFF
    return unrecorded or without_graph(script, value, depth - 1)


def _loaded(script: Script, value: cst.BaseExpression | None, path: tuple[int, ...]) -> bool:
    if value is None:
        return False
    source, _ = script.iteration.source(value, path)
    return source is not None and script.kind(source) is Kind.LOADER


def _is_type(script: Script, name: cst.Name) -> bool:
    """Return whether a name is a tensor type, of one device or another."""
    made = script.value_of(name).node
    if not isinstance(made, cst.IfExp):
        return False
    return all(
        (script.name(each) or "").startswith("torch.") and script.code(each).endswith("Tensor")
        for each in (made.body, made.orelse)
    )


# -- data ------------------------------------------------------------------------


def hidden(script: Script, node: cst.Attribute) -> str:
    """Return the message for a `.data`, empty if it is not a tensor's or is harmless."""
    tensor, holder = node.value, script.parent(node)
    if _asks_only(script, holder) or not _is_tensor(script, tensor, holder):
        return ""
    writes = _writes(script, node, holder)
    if not writes and _written_beside(script, node):
        return ""
    what = script.code(tensor)
    text = what if len(what) <= 40 else ""
    itself = f"`{text}`" if text else "the tensor"
    if _receiver(script, holder).startswith("torch.nn.init."):
        return f"`torch.nn.init` records nothing by itself: hand it {itself}, without `.data`"
    unrecorded = script.grad(node) is Grad.OFF
    if writes:
        if unrecorded:
            return f"`.data` hides this from autograd's checks: write to {itself}, nothing records"
        return (
            f"autograd does not see that `{text}.data` is written to, and gradients may be wrong: "
            f"write to {itself} under `torch.no_grad()`"
        )
    if isinstance(holder, cst.Subscript) and script.kind(tensor) is Kind.LOSS:
        return f"`{text}.data[0]` fails since torch 1.0: use `{text}.item()`"
    if isinstance(holder, cst.Attribute) and holder.attr.value == "item":
        return f"`{text}.data` is one more tensor for nothing: use `{text}.item()`"
    if (unrecorded and not _is_leaf(script, tensor)) or _has_no_graph(script, tensor):
        return f"{itself} has no graph: `.data` is one more tensor for nothing"
    return (
        f"autograd would not notice a change to `{text}.data`: `{text}.detach()` is the same, "
        "and is checked"
    )


def _has_no_graph(script: Script, tensor: cst.BaseExpression) -> bool:
    """Return whether a tensor has no graph, so that it equals its own `.data`."""
    if isinstance(tensor, cst.Attribute) and tensor.attr.value == "grad":
        return not script.mentions("create_graph")
    return without_graph(script, tensor)


def _is_tensor(script: Script, owner: cst.BaseExpression, holder: cst.CSTNode | None) -> bool:
    """Return whether the object with the `.data` is a tensor, according to its uses."""
    kind = script.kind(owner)
    if kind in (Kind.TENSOR, Kind.LOSS):
        return True
    if kind is not Kind.UNKNOWN or script.name(owner) is not None:
        return False
    if isinstance(holder, cst.Attribute) and holder.attr.value in _CHANGES:
        return not isinstance(owner, cst.Name) or owner.value not in ("self", "cls")
    return _is_leaf(script, owner) or _is_used_as_tensor(script, owner, holder)


def _is_used_as_tensor(
    script: Script, owner: cst.BaseExpression, holder: cst.CSTNode | None
) -> bool:
    """Return whether a `.data` is used as only tensors can be and its name fits a tensor."""
    if not isinstance(holder, cst.Attribute) or holder.attr.value not in _OF_TENSORS:
        return False
    while isinstance(owner, cst.Call) and isinstance(owner.func, cst.Attribute):
        if owner.func.attr.value not in _SAME or script.name(owner.func) is not None:
            return False
        owner = owner.func.value
    if not isinstance(owner, cst.Name) or not _RECORDS.isdisjoint(script.words(owner.value)):
        return False
    bindings = script.scopes.reaching(owner)
    return bool(bindings) and all(
        isinstance(binding.node, cst.Param)
        or binding.how in (How.LOOP, How.UNPACKED)
        or isinstance(binding.value, cst.Subscript)
        or _is_reshaped(script, binding)
        for binding in bindings
    )


def _is_reshaped(script: Script, binding: Binding) -> bool:
    """Return whether a name is assigned the result of a tensor method."""
    func = binding.value.func if isinstance(binding.value, cst.Call) else None
    return (
        isinstance(func, cst.Attribute) and script.name(func) is None and func.attr.value in _SAME
    )


def _is_leaf(script: Script, owner: cst.BaseExpression) -> bool:
    """Return whether a tensor is a parameter, a gradient or a running statistic."""
    if isinstance(owner, cst.Attribute) and owner.attr.value in _LEAVES:
        return True
    if not isinstance(owner, cst.Name):
        return _is_parameter(script, owner)
    bindings = script.scopes.reaching(owner)
    return bool(bindings) and all(
        binding.how is How.LOOP
        and binding.value is not None
        and _PARAMETERS.search(script.code(binding.value)) is not None
        for binding in bindings
    )


def _asks_only(script: Script, holder: cst.CSTNode | None) -> bool:
    """Return whether only the dtype, shape or device of a tensor is read."""
    if isinstance(holder, cst.Attribute):
        return holder.attr.value in _METADATA
    return _receiver(script, holder) in _TYPES


def _receiver(script: Script, holder: cst.CSTNode | None) -> str:
    """Return the qualified name of the function that takes a tensor."""
    call = script.parent(holder) if isinstance(holder, cst.Arg) else None
    return (script.name(call.func) or "") if isinstance(call, cst.Call) else ""


def _written_beside(script: Script, node: cst.Attribute) -> bool:
    """Return whether the same line writes to a `.data`, which is reported there."""
    line = script.smallest_statement(node)
    return isinstance(line, cst.BaseSmallStatement) and any(
        other is not node
        and other.attr.value == "data"
        and _writes(script, other, script.parent(other))
        for other in script.within(line, cst.Attribute)
    )


def _is_parameter(script: Script, tensor: cst.BaseExpression) -> bool:
    """Return whether this file makes a tensor a parameter."""
    made = script.value_of(tensor).node
    return isinstance(made, cst.Call) and script.name(made.func) == "torch.nn.Parameter"


def _writes(script: Script, node: cst.Attribute, holder: cst.CSTNode | None) -> bool:
    """Return whether a line modifies a tensor through its `.data`."""
    if script.scopes.stored(node) is not None:
        return True
    written: cst.CSTNode = node
    while isinstance(holder, cst.Subscript):
        written, holder = holder, script.parent(holder)
    if isinstance(holder, cst.Attribute):
        return holder.attr.value.endswith("_")
    if isinstance(holder, cst.AugAssign):
        return holder.target is written
    return isinstance(holder, cst.AssignTarget)
