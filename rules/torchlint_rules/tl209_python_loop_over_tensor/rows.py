"""Rows of a tensor that a Python loop takes, or fills, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import TENSORS, Frequency, Script
from torchlint_rules.tl209_python_loop_over_tensor.elements import ARITHMETIC, is_surely_tensor

_JOINING: Final = ("torch.stack", "torch.cat")
_WALKING: Final = ("builtins.range", "builtins.enumerate", "builtins.zip")
_FEW: Final = 3
_TRUTHS: Final = ("True", "False")
_FUNCTIONS: Final = tuple(f"torch.{word}" for word in "add sub mul div true_divide".split())


class Rows(NamedTuple):
    """Rows that are taken one by one and joined: the call that joins them, and their tensor."""

    joined: cst.Call
    tensor: cst.BaseExpression
    indices: cst.BaseExpression | None
    """The tensor of all indices, None if the indices are computed one by one."""


def rows_taken(script: Script) -> Iterator[Rows]:
    """Yield the calls in every step that join rows which a loop took from one tensor."""
    for site in script.calls.of(*_JOINING):
        given = site.given("tensors", 0)
        if given is None or not script.loops.each_step(site.node):
            continue
        for taken, target, drawn in _passes(script, given.value):
            row = _row(script, taken)
            if row is not None and _is_walked(script, row, target, drawn):
                plain = isinstance(target, cst.Name) and _is_index(row, target.value)
                known = plain and script.kind(drawn) in TENSORS
                yield Rows(site.node, row.value, drawn if known else None)


def _passes(
    script: Script, given: cst.BaseExpression
) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression, cst.BaseExpression]]:
    """Yield what each pass of a comprehension, or of a loop that fills a list, adds to it.

    The target and the iterated expression follow.
    """
    if isinstance(given, (cst.ListComp, cst.GeneratorExp)):
        part = given.for_in
        if not part.ifs and part.inner_for_in is None:
            yield given.elt, part.target, part.iter
    elif isinstance(given, cst.Name):
        added = script.values.origins.additions(given)
        loop = next((each.node for each in script.loops.around(added[0])), None) if added else None
        if len(added) == 1 and isinstance(loop, cst.For) and len(loop.body.body) == 1:
            yield added[0], loop.target, loop.iter


def _row(script: Script, taken: cst.BaseExpression) -> cst.Subscript | None:
    """Return the `x[i]` or `x[i, j]` that is taken, also with another dimension in front."""
    if isinstance(taken, cst.Call) and isinstance(taken.func, cst.Attribute):
        taken = taken.func.value if taken.func.attr.value == "unsqueeze" else taken
    if not isinstance(taken, cst.Subscript) or not isinstance(taken.value, cst.Name):
        return None
    return taken if _is_tensor(script, taken) else None


def _is_tensor(script: Script, item: cst.Subscript) -> bool:
    """Return whether the indexed object is a tensor on the device: no list takes two indices."""
    tensor = item.value
    if script.kind(tensor) not in TENSORS or script.values.placement.on_host(tensor):
        return False
    return len(item.slice) > 1 or is_surely_tensor(script, tensor)


def _is_walked(
    script: Script, item: cst.Subscript, target: cst.BaseExpression, drawn: cst.BaseExpression
) -> bool:
    """Return whether each pass over many indices takes another row, of one length, of a tensor."""
    names = {name.value for name in script.tree.within(target, cst.Name)}
    parts = [part.slice for part in item.slice]
    if any(isinstance(part, cst.Slice) and _uses(script, part, names) for part in parts):
        return False
    root = item.value.value if isinstance(item.value, cst.Name) else ""
    return root not in names and _uses(script, parts[0], names) and not _is_short(script, drawn)


def _is_index(item: cst.Subscript, word: str) -> bool:
    """Return whether the only index is a name."""
    index = item.slice[0].slice
    return (
        len(item.slice) == 1
        and isinstance(index, cst.Index)
        and isinstance(index.value, cst.Name)
        and index.value.value == word
    )


def _uses(script: Script, part: cst.CSTNode, names: set[str]) -> bool:
    return any(name.value in names for name in script.tree.within(part, cst.Name))


def _is_short(script: Script, drawn: cst.BaseExpression) -> bool:
    """Return whether a loop has few passes, or draws from something else than indices."""
    if script.kind(drawn) in TENSORS:
        return False
    if not isinstance(drawn, cst.Call) or script.name(drawn.func) not in _WALKING:
        return True
    sizes = [script.values.value_of(arg.value).literal for arg in drawn.args]
    return any(isinstance(size, int) and size <= _FEW for size in sizes[-1:])


def filled_by_row(script: Script, loop: cst.For, line: cst.BaseSmallStatement) -> str | None:
    """Return the tensor of which a loop's only line sets or changes one row, by numbers or rows."""
    if isinstance(line, cst.Assign) and len(line.targets) == 1:
        target, value = line.targets[0].target, line.value
    elif isinstance(line, cst.AugAssign):
        target, value = line.target, line.value
    else:
        return None
    if not isinstance(target, cst.Subscript) or not _is_tensor(script, target):
        return None
    names = {name.value for name in script.tree.within(loop.target, cst.Name)}
    if not _uses(script, target.slice[0], names) or _is_short(script, loop.iter):
        return None
    values = _operands(script, value)
    if not all(_is_number(each) or _is_row(script, each) for each in values):
        return None
    filled, itself = script.code(target.value), script.code(target)
    others = [each for each in values if script.code(each) != itself]
    names = {name.value for each in others for name in script.tree.within(each, cst.Name)}
    if filled in names:
        return None
    return filled if others and script.loops.frequency(loop) is not Frequency.RARE else None


def _operands(script: Script, value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the operands of a product, a quotient, a sum or a difference, else the value alone."""
    if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, ARITHMETIC):
        return [value.left, value.right]
    if isinstance(value, cst.Call) and script.name(value.func) in _FUNCTIONS:
        return [arg.value for arg in value.args]
    return [value]


def _is_number(value: cst.BaseExpression) -> bool:
    number = isinstance(value, (cst.Integer, cst.Float, cst.UnaryOperation))
    return number or (isinstance(value, cst.Name) and value.value in _TRUTHS)


def _is_row(script: Script, value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Subscript) and _is_tensor(script, value)
