"""Python loops that work on a batch sample by sample, only to add up or collect the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from torchlint.api import TENSORS, Kind, Script, lines_of, method_of, receiver_of, word_of

_REDUCING: Final = frozenset("sum mean norm prod logsumexp".split())
_SMALL: Final = (cst.Assign, cst.AugAssign, cst.Expr, cst.Return)


def worked_by_sample(script: Script, loop: cst.For) -> cst.BaseExpression | None:
    """Return the tensor whose samples a loop in each step takes one by one, None for others.

    Each pass computes without branches and reads, and no pass needs another's result.
    """
    lines = lines_of(loop.body)
    if loop.orelse is not None or any(isinstance(each, cst.Return) for each in lines):
        return None
    tensors = _taken(script, loop)
    if not tensors or any(map(script.values.placement.on_host, tensors)):
        return None
    if all(map(script.loops.is_output, tensors)) and not _has_shape(script, loop):
        return None  # networks may give lists
    kept = [each for each in map(_kept, lines) if each is not None]
    if len(kept) != 1 or not _are_apart(script, loop, kept[0]):
        return None
    if not _reduces(script, lines) or not script.loops.each_step(loop):
        return None
    return tensors[0]


def _taken(script: Script, loop: cst.For) -> list[cst.BaseExpression]:
    """Return the tensors of which a loop takes the rows, nothing if it takes anything else."""
    iterated = loop.iter
    if not isinstance(iterated, cst.Call):
        return []
    if script.name(iterated.func) == "builtins.zip":
        sources = [arg.value for arg in iterated.args]
        return sources if all(script.kind(each) in TENSORS for each in sources) else []
    if script.name(iterated.func) != "builtins.range":
        return []
    if len(iterated.args) != 1 or not _is_size(script, iterated.args[0].value):
        return []
    uses = [
        script.tree.parent(name)
        for name in script.tree.within(loop.body, cst.Name)
        if script.code(name) == script.code(loop.target)
    ]
    rows = [_row(script, use) for use in uses]
    found = [each for each in rows if each is not None and script.kind(each) in TENSORS]
    return found if len(found) == len(rows) else []


def _has_shape(script: Script, loop: cst.For) -> bool:
    """Return whether a loop counts by the shape of what it takes, not by its length."""
    (first, *_) = cst.ensure_type(loop.iter, cst.Call).args
    size = script.scopes.only(first.value).assigned or first.value
    return isinstance(size, cst.Subscript) or receiver_of(size, "size") is not None


def _is_size(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a number is the first size of a tensor: `len(x)`, `x.shape[0]`."""
    value = script.scopes.only(node).assigned or node
    if isinstance(value, cst.Call):
        if script.name(value.func) == "builtins.len" and len(value.args) == 1:
            return script.kind(value.args[0].value) in TENSORS
        sized = receiver_of(value, "size")
        return sized is not None and [script.code(arg) for arg in value.args] == ["0"]
    if not isinstance(value, cst.Subscript) or script.values.key(value) != 0:
        return False
    shape = value.value
    return receiver_of(shape, "size") is not None or (
        isinstance(shape, cst.Attribute) and shape.attr.value == "shape"
    )


def _row(script: Script, index: cst.CSTNode | None) -> cst.BaseExpression | None:
    """Return the tensor of which an index takes a row: `x` of `x[i]`."""
    item = script.tree.parent(script.tree.parent(index))
    if not isinstance(item, cst.Subscript) or len(item.slice) != 1:
        return None
    return item.value


def _kept(line: cst.CSTNode) -> str | None:
    """Return the name that a line adds a result to, or appends it to."""
    if isinstance(line, cst.AugAssign) and isinstance(line.operator, cst.AddAssign):
        return line.target.value if isinstance(line.target, cst.Name) else None
    call = line.value if isinstance(line, cst.Expr) else None
    owner = receiver_of(call, "append")
    return owner.value if isinstance(owner, cst.Name) else None


def _are_apart(script: Script, loop: cst.For, kept: str) -> bool:
    """Return whether each pass only reads what it, or code before the loop, has made."""
    for name in script.tree.within(loop.body, cst.Name):
        if not script.scopes.reads(name) or name.value == kept:
            continue
        made = (each.node for each in script.scopes.reaching(name))
        lines = [
            script.tree.smallest_statement(each)
            for each in made
            if script.tree.inside(each, loop.body)
        ]
        if any(script.tree.end(line) > script.tree.order(name) for line in lines):
            return False
    return True


def _reduces(script: Script, lines: Sequence[cst.CSTNode]) -> bool:
    """Return whether lines, with the functions that they call, sum up whole rows and no more."""
    computed = list(_computed(script, lines))
    if not all(isinstance(each, _SMALL) for each in computed):
        return False
    items = (item for each in computed for item in script.tree.within(each, cst.Subscript))
    calls = [call for each in computed for call in script.tree.within(each, cst.Call)]
    return (
        not any(_varies(script, item) for item in items)
        and all(_only_computes(script, call) for call in calls)
        and any(word_of(each) in _REDUCING or script.kind(each) is Kind.LOSS for each in calls)
    )


def _computed(script: Script, lines: Sequence[cst.CSTNode]) -> Iterator[cst.CSTNode]:
    """Yield lines, and those of the functions in view that they call."""
    yield from lines
    for call in (call for line in lines for call in script.tree.within(line, cst.Call)):
        function = script.functions.callee(call)
        if function is not None:
            yield from lines_of(function.body)


def _varies(script: Script, item: cst.Subscript) -> bool:
    """Return whether the size of an item may differ from row to row: `x[:n]`, `x[mask]`."""
    parts = [each.slice for each in item.slice]
    indices = (part.value for part in parts if isinstance(part, cst.Index))
    slices = (part for part in parts if isinstance(part, cst.Slice))
    return any(script.kind(index) in TENSORS for index in indices) or any(
        part.lower is not None or part.upper is not None for part in slices
    )


def _only_computes(script: Script, call: cst.Call) -> bool:
    """Return whether a call computes with tensors where they are, or collects a result."""
    if script.functions.callee(call) is not None or method_of(call) == "append":
        return True
    if script.readings.reading(call) is not None:
        return False
    return (script.name(call.func) or "").startswith("torch.") or script.kind(call) in TENSORS
