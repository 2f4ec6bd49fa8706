"""Loops over the elements of a tensor, and the operations in them."""

from __future__ import annotations

from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import TENSORS, How, Script, method_of, receiver_of

_POINTWISE: Final = frozenset(
    "abs exp log log2 log10 log1p expm1 sqrt rsqrt square pow sin cos tan tanh sigmoid relu "
    "float double detach neg reciprocal clone".split()
)
_TENSORS_ONLY: Final = frozenset(
    "argmax argmin eq ne gt lt ge le abs detach squeeze unsqueeze flatten softmax log_softmax "
    "sigmoid square clamp masked_fill masked_select index_select gather new_tensor new_zeros "
    "new_ones new_full new_empty".split()
)
ARITHMETIC: Final = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide, cst.Power)


class Walk(NamedTuple):
    """A loop over a dimension of a tensor, by element or by index."""

    tensor: cst.BaseExpression
    target: cst.Name
    by_index: bool
    dimension: int = 0


def walk(script: Script, target: cst.CSTNode, iterated: cst.BaseExpression) -> Walk | None:
    """Return the tensor that a loop iterates over, None if it may not be a tensor."""
    if not isinstance(target, cst.Name):
        return None
    if isinstance(iterated, cst.Call) and script.name(iterated.func) == "builtins.range":
        if len(iterated.args) != 1 or iterated.args[0].star:
            return None
        measured = _measured(script, iterated.args[0].value)
        return Walk(measured[0], target, True, measured[1]) if measured is not None else None
    return Walk(iterated, target, False) if is_surely_tensor(script, iterated) else None


def _measured(script: Script, node: cst.BaseExpression) -> tuple[cst.BaseExpression, int] | None:
    """Return the tensor whose length an expression is, and the dimension."""
    if isinstance(node, cst.Call) and len(node.args) == 1:
        given = node.args[0].value
        if script.name(node.func) == "builtins.len":
            return (given, 0) if is_surely_tensor(script, given) else None
        tensor = receiver_of(node, "size")
        if tensor is not None:
            size = script.values.value_of(given).literal
            return (tensor, size) if size in (0, 1, 2) else None
    if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Attribute):
        if node.value.attr.value == "shape":
            size = script.values.key(node)
            if size in (0, 1, 2) and is_surely_tensor(script, node.value.value):
                return node.value.value, size
    return None


def is_constant(value: cst.BaseExpression) -> bool:
    """Return whether a value is a literal number or truth value."""
    named = isinstance(value, cst.Name) and value.value in ("True", "False")
    return named or isinstance(value, (cst.Integer, cst.Float, cst.UnaryOperation))


def is_surely_tensor(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression is used as a tensor, whatever its origin.

    The result of a network, an item of a batch or an argument may be a list.
    """
    if script.kind(node) not in TENSORS:
        return False
    if isinstance(node, cst.Comparison):
        sides = [node.left, *(part.comparator for part in node.comparisons)]
        return any(script.answer(is_surely_tensor, side, False) for side in sides)
    if isinstance(node, cst.BinaryOperation):
        sides = [node.left, node.right]
        return any(script.answer(is_surely_tensor, side, False) for side in sides)
    if isinstance(node, cst.UnaryOperation):
        return script.answer(is_surely_tensor, node.expression, False)
    if isinstance(node, cst.Subscript):
        return script.answer(is_surely_tensor, node.value, False)
    if isinstance(node, cst.Attribute):
        return node.attr.value in ("T", "mT", "data", "grad")
    if isinstance(node, cst.Call):
        name = script.name(node.func) or ""
        if name.startswith("torch."):
            return True
        owner = receiver_of(node)
        if name or owner is None or script.functions.definition(node.func) is not None:
            return False
        return method_of(node) in _TENSORS_ONLY or script.answer(is_surely_tensor, owner, False)
    if not isinstance(node, cst.Name):
        return False
    bindings = script.scopes.reaching(node)
    return bool(bindings) and all(
        each.how is How.ASSIGN
        and each.value is not None
        and script.answer(is_surely_tensor, each.value, False)
        for each in bindings
    )


def outermost_item(script: Script, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return `e` of `e.item()` and `float(e)`."""
    if not isinstance(node, cst.Call):
        return None
    if not node.args:
        return receiver_of(node, "item")
    if script.name(node.func) == "builtins.float" and len(node.args) == 1:
        return node.args[0].value
    return None


def elementwise(script: Script, found: Walk, node: cst.BaseExpression) -> str | None:
    """Return an expression of one element rewritten for the whole tensor, None if it differs."""
    if _is_element(script, found, node):
        return script.tree.operand(found.tensor)
    parts = _parts(script, node)
    inner = [(part, elementwise(script, found, part)) for part in parts]
    changed = [(part, text) for part, text in inner if text is not None]
    rest = [part for part, text in inner if text is None]
    if not changed or not all(script.values.numbers.is_number(part) for part in rest):
        return None
    span, code = script.span(node), script.tree.text(node)
    for part, text in sorted(changed, key=lambda each: -script.span(each[0]).start):
        at = script.span(part)
        code = f"{code[: at.start - span.start]}{text}{code[at.end - span.start :]}"
    return code


def _parts(script: Script, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the operands of an element-wise operation, empty for any other."""
    if isinstance(node, cst.BinaryOperation):
        return [node.left, node.right] if isinstance(node.operator, ARITHMETIC) else []
    if isinstance(node, cst.UnaryOperation):
        return [node.expression] if isinstance(node.operator, cst.Minus) else []
    if not isinstance(node, cst.Call) or any(arg.star or arg.keyword for arg in node.args):
        return []
    name = script.name(node.func)
    plain = [arg.value for arg in node.args]
    owner = receiver_of(node, *_POINTWISE)
    if name is None and owner is not None:
        return [owner, *plain]
    module, _, word = (name or "").rpartition(".")
    if name == "builtins.abs" or (module == "torch" and word in _POINTWISE):
        return plain
    return []


def _is_element(script: Script, found: Walk, node: cst.BaseExpression) -> bool:
    if not found.by_index:
        return isinstance(node, cst.Name) and node.value == found.target.value
    if not isinstance(node, cst.Subscript) or len(node.slice) <= found.dimension:
        return False
    others = [part.slice for at, part in enumerate(node.slice) if at != found.dimension]
    if not all(isinstance(each, cst.Slice) and script.code(each) == ":" for each in others):
        return False
    index = node.slice[found.dimension].slice
    return (
        isinstance(index, cst.Index)
        and isinstance(index.value, cst.Name)
        and index.value.value == found.target.value
        and script.code(node.value) == script.code(found.tensor)
    )
