"""Moving averages of parameters: which operand is old, which is new, and which is the weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Script, method_of, receiver_of

_BARE: Final = ("data", "detach")
_ROUNDING: Final = 1e-12
_Test = Callable[[cst.BaseExpression, frozenset[str]], bool]


class Average(NamedTuple):
    """`old` moves towards `new` by `weight`, written as source text."""

    node: cst.CSTNode
    old: str
    new: str
    weight: str


class _Term(NamedTuple):
    """One product in a sum: a tensor and its weight."""

    tensor: cst.BaseExpression
    factor: cst.BaseExpression


def average_of(
    script: Script, line: cst.BaseSmallStatement, parameters: frozenset[str]
) -> Average | None:
    """Return the average that a line computes, None for any other line.

    `parameters` are the names that each hold a parameter.
    """
    if isinstance(line, cst.Assign) and len(line.targets) == 1:
        target = line.targets[0].target
        if isinstance(target, cst.Attribute) and target.attr.value == "data":
            return _of_sum(script, line, target, line.value, parameters)
    if not isinstance(line, cst.Expr) or not isinstance(line.value, cst.Call):
        return None
    call = line.value
    owner = receiver_of(call)
    if len(call.args) != 1 or owner is None:
        return None
    given = call.args[0]
    if given.keyword is not None or given.star:
        return None
    if method_of(call) == "copy_":
        return _of_sum(script, call, owner, given.value, parameters)
    if method_of(call) == "add_" and isinstance(owner, cst.Call):
        return _of_chain(script, call, owner, given.value, parameters)
    return None


def scaled_and_added(
    script: Script, line: cst.BaseSmallStatement, parameters: frozenset[str]
) -> Average | None:
    """Return the average of `old.mul_(d).add_(new, alpha=1 - d)`, None for any other line.

    `old` and `new` are names of `parameters`, or entries that such a name picks.
    """
    call = line.value if isinstance(line, cst.Expr) else None
    scaled = receiver_of(call, "add_")
    if not isinstance(call, cst.Call) or not isinstance(scaled, cst.Call) or len(call.args) != 2:
        return None
    old, (new, share) = receiver_of(scaled, "mul_"), call.args
    if old is None or len(scaled.args) != 1:
        return None
    if share.keyword is None or share.keyword.value != "alpha" or new.keyword is not None:
        return None
    drawn = _is_picked(new.value, parameters) or _is_copied(script, new.value, parameters)
    if not (drawn and _is_picked(old, parameters)) or not _complete(
        script, scaled.args[0].value, share.value
    ):
        return None
    weight = script.tree.argument(share.value)
    return Average(call, script.code(old), script.code(new.value), weight)


def copied_from_lerp(
    script: Script, line: cst.BaseSmallStatement, parameters: frozenset[str]
) -> Average | None:
    """Return the average of `old.copy_(new.lerp(old, d))`, None for any other line."""
    call = line.value if isinstance(line, cst.Expr) else None
    old = receiver_of(call, "copy_")
    if not isinstance(call, cst.Call) or not call.args:
        return None
    made = call.args[0].value
    new = receiver_of(made, "lerp")
    if old is None or new is None or not isinstance(made, cst.Call) or len(made.args) != 2:
        return None
    end, share = (arg.value for arg in made.args)
    if script.code(end) != script.code(old) or not _is_picked(old, parameters):
        return None
    if not _is_picked(new, parameters):
        return None
    return Average(call, script.code(old), script.code(new), f"1 - {script.tree.argument(share)}")


def by_difference(
    script: Script, line: cst.BaseSmallStatement, parameters: frozenset[str]
) -> Average | None:
    """Return the average of `old.sub_(w * (old - new))` or `old += w * (new - old)`."""
    old, moved, adds = _moved(line)
    if old is None or not isinstance(moved, cst.BinaryOperation):
        return None
    for apart, share in ((moved.left, moved.right), (moved.right, moved.left)):
        if not isinstance(moved.operator, cst.Multiply) or not isinstance(
            apart, cst.BinaryOperation
        ):
            continue
        first, second = (apart.right, apart.left) if adds else (apart.left, apart.right)
        drawn = _is_picked(old, parameters) and _is_picked(second, parameters)
        if isinstance(apart.operator, cst.Subtract) and drawn:
            if script.code(first) == script.code(old):
                weight = script.tree.argument(share)
                return Average(line, script.code(old), script.code(second), weight)
    return None


def _moved(
    line: cst.BaseSmallStatement,
) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None, bool]:
    """Return what a line moves in place, by how much, and whether it adds that."""
    if isinstance(line, cst.AugAssign):
        adds = isinstance(line.operator, cst.AddAssign)
        known = adds or isinstance(line.operator, cst.SubtractAssign)
        return (line.target if known else None), line.value, adds
    call = line.value if isinstance(line, cst.Expr) else None
    if not isinstance(call, cst.Call) or len(call.args) != 1:
        return None, None, False
    return receiver_of(call, "add_", "sub_"), call.args[0].value, method_of(call) == "add_"


def in_two_lines(
    script: Script, line: cst.BaseSmallStatement, parameters: frozenset[str]
) -> Average | None:
    """Return the average of `old *= d` and `old += (1 - d) * new`, None for any other line."""
    if not isinstance(line, cst.AugAssign) or not isinstance(line.operator, cst.AddAssign):
        return None
    lines = [*script.tree.within(script.scopes.home(line), cst.AugAssign)]
    scaled = lines[max(lines.index(line) - 1, 0)]
    old, term = script.code(line.target), _term(line.value, parameters, _is_picked)
    if script.code(scaled.target) != old or not isinstance(scaled.operator, cst.MultiplyAssign):
        return None
    if term is None or not _is_picked(line.target, parameters):
        return None
    if not _complete(script, scaled.value, term.factor):
        return None
    return Average(line, old, script.code(term.tensor), script.tree.argument(term.factor))


def in_a_new_tensor(
    script: Script, line: cst.BaseSmallStatement, parameters: frozenset[str]
) -> Average | None:
    """Return the average of `kept[name] = d * kept[name] + (1 - d) * new`, None for others."""
    target = line.targets[0].target if isinstance(line, cst.Assign) else None
    if not isinstance(line, cst.Assign) or not isinstance(target, cst.Subscript):
        return None
    value = receiver_of(line.value, "clone", "detach") or line.value
    value = script.scopes.only(value).value or value
    return _of_sum(script, line, target, value, parameters, _is_picked)


def _is_picked(node: cst.BaseExpression, parameters: frozenset[str]) -> bool:
    """Return whether an expression is a parameter, an entry for one, or `.data` of either."""
    if isinstance(node, cst.Call):
        return not node.args and _is_picked(node.func, parameters)
    if isinstance(node, cst.Attribute):
        return node.attr.value in _BARE and _is_picked(node.value, parameters)
    if isinstance(node, cst.Subscript):
        part = node.slice[0].slice
        return isinstance(part, cst.Index) and _is_picked(part.value, parameters)
    return isinstance(node, cst.Name) and node.value in parameters


def _is_copied(script: Script, node: cst.BaseExpression, parameters: frozenset[str]) -> bool:
    """Return whether a name holds a parameter, perhaps in another type or on another device."""
    bindings = script.scopes.reaching(node)
    values = [each.value for each in bindings]
    moved = (each if each is None else receiver_of(each, "to") or each for each in values)
    own = cst.ensure_type(node, cst.Name).value if values else ""
    return bool(values) and all(
        each is not None and (_is_picked(each, parameters) or script.code(each) == own)
        for each in moved
    )


def _of_sum(
    script: Script,
    node: cst.CSTNode,
    target: cst.BaseExpression,
    value: cst.BaseExpression,
    parameters: frozenset[str],
    is_tensor: _Test | None = None,
) -> Average | None:
    """Return the average of `d * old + (1 - d) * new`, in either order."""
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Add):
        return None
    sides = (value.left, value.right)
    terms = [_term(side, parameters, is_tensor or _is_tensor) for side in sides]
    old = script.code(target)
    for first, second in (terms, terms[::-1]):
        if first is not None and second is not None and script.code(first.tensor) == old:
            if _complete(script, first.factor, second.factor):
                new, weight = script.code(second.tensor), script.tree.argument(second.factor)
                return Average(node, old, new, weight)
    return None


def _of_chain(
    script: Script,
    node: cst.Call,
    scaled: cst.Call,
    added: cst.BaseExpression,
    parameters: frozenset[str],
) -> Average | None:
    """Return the average of `old.mul_(d).add_((1 - d) * new)`."""
    term = _term(added, parameters)
    old = receiver_of(scaled, "mul_")
    if term is None or old is None:
        return None
    if len(scaled.args) != 1 or not _complete(script, scaled.args[0].value, term.factor):
        return None
    weight = script.tree.argument(term.factor)
    return Average(node, script.code(old), script.code(term.tensor), weight)


def _is_tensor(node: cst.BaseExpression, parameters: frozenset[str]) -> bool:
    """Return whether an expression is a parameter, or `x.data` or `x.detach()` of one."""
    if isinstance(node, cst.Name):
        return node.value in parameters
    if isinstance(node, cst.Call):
        return not node.args and _is_tensor(node.func, parameters)
    return isinstance(node, cst.Attribute) and node.attr.value in _BARE


def _term(
    node: cst.BaseExpression, parameters: frozenset[str], is_tensor: _Test = _is_tensor
) -> _Term | None:
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Multiply):
        return None
    for tensor, factor in ((node.left, node.right), (node.right, node.left)):
        if is_tensor(tensor, parameters) and not is_tensor(factor, parameters):
            return _Term(tensor, factor)
    return None


def _complete(script: Script, first: cst.BaseExpression, second: cst.BaseExpression) -> bool:
    """Return whether two weights sum to one: `d` and `1 - d`, or two numbers."""
    numbers = [script.values.value_of(each).literal for each in (first, second)]
    if all(type(number) is float for number in numbers):
        return bool(abs(sum(numbers) - 1) < _ROUNDING)
    return _rest(script, first) == script.code(second) or _rest(script, second) == script.code(
        first
    )


def _rest(script: Script, node: cst.BaseExpression) -> str | None:
    """Return `d` of `1 - d`."""
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Subtract):
        return None
    whole = node.left
    if not isinstance(whole, (cst.Integer, cst.Float)) or float(whole.value) != 1:
        return None
    return script.code(node.right)
