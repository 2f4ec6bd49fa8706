"""Tensors that a step computes on the host from nothing but tensors that it makes there."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import ASSIGNED, TENSORS, Binding, How, Kind, Script, method_of, receiver_of
from torchlint_rules.tl203_created_on_host.hosttensors import (
    INNER,
    Made,
    is_leaf,
    is_plain,
    made,
)

_PLAIN: Final = ("torch.", "builtins.", "itertools.", "math.")
_LEAF: Final = "requires_grad_"
_JOINING: Final = ("torch.cat", "torch.concat", "torch.stack")
_GRID: Final = "torch.meshgrid"
_SHAPES: Final = ("expand_as", "reshape_as", "view_as")
"""Methods that take only the shape of what they get."""
_FILLING: Final = frozenset("from_numpy tensor as_tensor load".split())
"""Functions of torch that copy what the host holds, whatever they get."""


def computed(script: Script, node: cst.BaseExpression, depth: int = ASSIGNED) -> Made | None:
    """Return the call that makes the first tensor of a computation on the host.

    None if any operand comes from elsewhere.
    """
    if not depth:
        return None
    if isinstance(node, cst.Name):
        return _named(script, node, depth)
    if isinstance(node, cst.UnaryOperation):
        return computed(script, node.expression, depth - 1)
    if isinstance(node, (cst.List, cst.Tuple)):
        return _of_all(script, [each.value for each in node.elements], depth)
    if isinstance(node, cst.BinaryOperation):
        return _of_all(script, [node.left, node.right], depth)
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        return _of_all(script, [node.left, node.comparisons[0].comparator], depth)
    return _called(script, node, depth) if isinstance(node, cst.Call) else None


def _called(script: Script, call: cst.Call, depth: int) -> Made | None:
    """Return what a call computes from: a factory, its tensors, or the result of a function."""
    found = made(script, call)
    if found is not None:
        return found
    callee = script.functions.callee(call)
    if callee is not None:
        returned = script.functions.returns(callee)
        if not is_plain(script, callee) or len(returned) != 1:
            return None
        return computed(script, returned[0], depth - 1) or _made_within(script, call, callee)
    name, receiver = script.name(call.func), receiver_of(call)
    if name in INNER and call.args:
        return None if is_leaf(script, call) else computed(script, call.args[0].value, depth - 1)
    takes_all = name in (*_JOINING, _GRID)
    given = [
        arg.value
        for arg in (call.args if method_of(call) not in _SHAPES else ())
        if (takes_all and arg.keyword is None) or script.kind(arg.value) in TENSORS
    ]
    if name is None and receiver is not None:
        if script.program.moves.move(call) is not None or script.kind(receiver) not in TENSORS:
            return None
        if method_of(call) == _LEAF:
            return None
        return _of_all(script, [receiver, *given], depth)
    module, _, last = (name or "").rpartition(".")
    if module != "torch" or last in _FILLING:
        return None
    return _of_all(script, given, depth)


def _made_within(script: Script, call: cst.Call, callee: cst.FunctionDef) -> Made | None:
    """Return what a function makes first that gets sizes alone, and calls nothing but torch."""
    if not all(_is_size(script, arg.value) for arg in call.args):
        return None
    found = None
    for inner in script.tree.within(callee.body, cst.Call):
        name = script.name(inner.func)
        if name is not None and not name.startswith(_PLAIN):
            return None
        if name is None and not isinstance(inner.func, cst.Attribute):
            return None
        if script.program.moves.move(inner) is not None or script.calls.at(inner).given("device"):
            return None
        found = found or made(script, inner)
    read = {name.value for name in script.tree.within(callee.body, cst.Name)}
    return found if "self" not in read else None


def _is_size(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an argument is a number, a literal, or a shape: `x.shape[-2:]`."""
    if isinstance(node, cst.Subscript):
        node = node.value
    return (
        _is_number(script, node)
        or script.values.value_of(node).is_literal
        or (isinstance(node, cst.Attribute) and node.attr.value == "shape")
        or method_of(node) == "size"
    )


def _of_all(script: Script, operands: list[cst.BaseExpression], depth: int) -> Made | None:
    """Return what the first operand is computed from that is no number, if all others are, too."""
    tensors = [each for each in operands if not _is_number(script, each)]
    found = [computed(script, each, depth - 1) for each in tensors]
    return found[0] if found and all(found) else None


def _is_number(script: Script, node: cst.BaseExpression) -> bool:
    return script.kind(node) is Kind.NUMBER or script.values.numbers.is_number(node)


def _named(script: Script, name: cst.Name, depth: int) -> Made | None:
    """Return what a name holds that each way to it assigns, if nothing writes into it."""
    found = [_assigned(script, each, name, depth) for each in script.scopes.reaching(name)]
    return found[0] if found and all(found) else None


def _assigned(script: Script, binding: Binding, name: cst.Name, depth: int) -> Made | None:
    """Return what a line of the same pass assigns, alone or as one of a grid's coordinates."""
    whole = binding.how is How.ASSIGN
    if binding.value is None or not (whole or _is_grid(script, binding)):
        return None
    line = binding.node
    if script.loops.batch_loop(line) is not script.loops.batch_loop(name):
        return None
    home = script.scopes.home(name)
    if script.scopes.home(line) is not home:
        return None
    uses = script.scopes.uses(binding, home)
    if any(_is_filled(script, each) or _is_looked_at(script, each) for each in uses):
        return None
    return computed(script, binding.value, depth - 1)


def _is_grid(script: Script, binding: Binding) -> bool:
    """Return whether a line unpacks what `torch.meshgrid` returns."""
    value = binding.value if binding.how is How.UNPACKED else None
    return isinstance(value, cst.Call) and script.name(value.func) == _GRID


def _is_filled(script: Script, use: cst.Name) -> bool:
    """Return whether an entry of a tensor is set, which is better done on the host."""
    write = script.values.writes.at(use)
    return write is not None and write.keys > 0


def _is_looked_at(script: Script, use: cst.Name) -> bool:
    """Return whether the host needs a tensor where it is: it is printed, or decides something."""
    for outer in script.tree.ancestors(use):
        if isinstance(outer, (cst.If, cst.While, cst.For, cst.Assert, cst.Expr)):
            shown = outer.value if isinstance(outer, cst.Expr) else None
            given = isinstance(shown, cst.Call) and any(
                script.tree.inside(use, arg) for arg in shown.args
            )
            return shown is None or (given and method_of(shown) != "copy_")
        if isinstance(outer, cst.BaseSmallStatement):
            return False
    return False
