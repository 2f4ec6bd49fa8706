"""Rows of a tensor that a Python loop takes, or fills, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import TENSORS, Frequency, Kind, Script, index_of
from torchlint_rules.tl209_python_loop_over_tensor.elements import (
    ARITHMETIC,
    is_constant,
    is_surely_tensor,
)

_JOINING: Final = ("torch.stack", "torch.cat")
_WALKING: Final = ("builtins.range", "builtins.enumerate", "builtins.zip")
_FEW: Final = 3
_FUNCTIONS: Final = tuple(f"torch.{word}" for word in "add sub mul div true_divide".split())


class Rows(NamedTuple):
    """Rows that are taken one by one and joined: the call that joins them, and their tensor."""

    joined: cst.Call
    tensor: cst.BaseExpression
    indices: cst.BaseExpression | None
    """The tensor of all indices, None if the indices are computed one by one."""


def rows_taken(script: Script) -> Iterator[Rows]:
    """Yield the calls in every step that join rows which a loop took from one tensor."""
    for site in script.tree.in_file(script.calls.of(*_JOINING)):
        given = site.given("tensors", 0)
        for taken, target, drawn in _passes(script, given.value) if given is not None else ():
            row = _row(taken)
            if row is None or not script.loops.each_step(site.node):
                continue
            tensor = _tensor(script, row, target, drawn)
            if tensor is not None:
                plain = isinstance(target, cst.Name) and _is_index(row, target.value)
                known = plain and script.kind(drawn) in TENSORS
                yield Rows(site.node, tensor, drawn if known else None)


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
        if len(added) == 1 and isinstance(loop, cst.For) and _takes_alone(script, loop, added[0]):
            yield added[0], loop.target, loop.iter


def _takes_alone(script: Script, loop: cst.For, taken: cst.BaseExpression) -> bool:
    """Return whether each pass of a loop adds a row, of what no pass makes, and runs no network."""
    if len(loop.body.body) == 1:
        return True
    line, row = script.tree.statement(taken), _row(taken)
    return (
        row is not None
        and script.tree.parent(line) is loop.body
        and not any(script.tree.inside(b.node, loop) for b in script.scopes.reaching(row.value))
        and not script.loops.runs_module(loop.body)
    )


def _row(taken: cst.BaseExpression) -> cst.Subscript | None:
    """Return the `x[i]` or `x[i, j]` that is taken, also with a new dimension or a second row."""
    if isinstance(taken, cst.BinaryOperation) and isinstance(taken.operator, ARITHMETIC):
        rows = _row(taken.left), _row(taken.right)
        same = rows[0] and rows[1] and rows[0].value.deep_equals(rows[1].value)
        return rows[0] if same else None
    if isinstance(taken, cst.Call) and isinstance(taken.func, cst.Attribute):
        taken = taken.func.value if taken.func.attr.value == "unsqueeze" else taken
    return taken if isinstance(taken, cst.Subscript) and isinstance(taken.value, cst.Name) else None


def _tensor(
    script: Script, item: cst.Subscript, target: cst.BaseExpression, drawn: cst.BaseExpression
) -> cst.BaseExpression | None:
    """Return the tensor on the device of which each pass takes another row, of one length.

    An item `x[i, j]` names it, or `row[j]` where the passes draw the rows as well.
    """
    names = {name.value for name in script.tree.within(target, cst.Name)}
    parts = [part.slice for part in item.slice]
    if any(_uses(script, each, names) and not _is_single(script, each) for each in parts):
        return None
    if isinstance(item.value, cst.Name) and item.value.value in names:
        row = script.scopes.only(item.value)
        whole, path = script.values.iteration.source(drawn, row.path)
        others = names - {item.value.value}
        moves = whole is not None and not path and any(_uses(script, e, others) for e in parts)
        return (
            whole
            if moves and whole is not None and script.values.placement.may_be_on_device(whole)
            else None
        )
    walked = any(_uses(script, each, names) for each in parts) and not _is_short(script, drawn)
    return item.value if walked and _is_tensor(script, item) else None


def _is_tensor(script: Script, item: cst.Subscript) -> bool:
    """Return whether the indexed object is a tensor on the device: no list takes two indices."""
    sure = len(item.slice) > 1 or is_surely_tensor(script, item.value)
    return sure and script.values.placement.may_be_on_device(item.value)


def _is_single(script: Script, part: cst.BaseSlice) -> bool:
    """Return whether an index takes one place: `i`, or the slice `i - 1 : i`."""
    if not isinstance(part, cst.Slice):
        return True
    if part.lower is None or part.upper is None:
        return False
    lower, upper = script.code(part.lower), script.code(part.upper)
    return lower == f"{upper} - 1" or upper == f"{lower} + 1"


def _is_index(item: cst.Subscript, word: str) -> bool:
    """Return whether the only index is a name."""
    index = index_of(item)
    return isinstance(index, cst.Name) and index.value == word


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
    used = any(_uses(script, each, names) for each in target.slice)
    if not used or _is_short(script, loop.iter):
        return None
    values = _operands(script, value)
    if not all(is_constant(each) or _is_row(script, each) for each in values):
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


def _is_row(script: Script, value: cst.BaseExpression) -> bool:
    """Return whether a value is a part of a tensor on the device, or a number of an array."""
    return isinstance(value, cst.Subscript) and (
        _is_tensor(script, value) or script.kind(value.value) is Kind.NDARRAY
    )
