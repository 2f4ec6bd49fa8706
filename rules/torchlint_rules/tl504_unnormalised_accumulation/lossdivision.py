"""Whether the losses of an accumulation window are divided, or need no division."""

from __future__ import annotations

import re
from typing import Final

import libcst as cst

from torchlint.api import (
    ASSIGNED,
    GradientAccumulation,
    How,
    Kind,
    PassFunction,
    Script,
    State,
    method_of,
    receiver_of,
)

_SCALE_FREE: Final = frozenset(
    "Adam AdamW NAdam RAdam Adamax SparseAdam RMSprop Adagrad Adadelta Rprop".split()
)
"""Optimizers whose steps hardly depend on the size of the gradients."""
_DECOUPLED: Final = frozenset({"AdamW"})
_LOOKED_THROUGH: Final = frozenset(
    "mean float double to cuda cpu squeeze clone contiguous half item".split()
)
_DIVIDING: Final = frozenset("div div_ mul mul_ true_divide multiply divide".split())
_COUNTS: Final = ("numel", "nelement")
_SCALES: Final = re.compile(r"scale|norm|factor|inv|weight", re.IGNORECASE)
_RATE: Final = re.compile(r"(?:\w*_)?(?:lr|learning_rate)")
_BATCH: Final = re.compile(r"batch|\bbs\b", re.IGNORECASE)


def is_averaged(
    script: Script,
    window: GradientAccumulation | PassFunction,
    size: cst.BaseExpression,
    losses: list[cst.BaseExpression],
) -> bool:
    """Return whether other code may divide, or the losses should be summed."""
    word = script.code(size).rpartition(".")[2]
    return (
        any(_is_scaled(script, loss, word, ASSIGNED) for loss in losses)
        or any(
            each.attr.value == "grad" for each in script.tree.within(window.around, cst.Attribute)
        )
        or script.optimizers.gradient_work.changes(window)
        or _rate_is_scaled(script, word)
        or _is_scale_free(script, window)
    )


def _mentions(script: Script, node: cst.CSTNode, word: str) -> bool:
    code = script.code(node)
    return "accum" in code.lower() or re.search(rf"\b{re.escape(word)}\b", code) is not None


def _is_scaled(script: Script, node: cst.BaseExpression, word: str, depth: int) -> bool:
    """Return whether a loss may be divided by the window size, or is a sum over samples."""
    if not depth:
        return False
    if isinstance(node, cst.Name):
        return any(
            _is_scaled_by(script, binding.node, binding.value, binding.how, word, depth - 1)
            for binding in script.scopes.reaching(node)
        )
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, (cst.Divide, cst.FloorDivide)):
            size = node.right
            if method_of(size) not in _COUNTS and not script.program.is_batch_size(size):
                return True
            return _is_scaled(script, node.left, word, depth - 1)
        if isinstance(node.operator, cst.Multiply) and _is_factor(script, node, word):
            return True
        sides = (node.left, node.right)
        return any(_is_scaled(script, side, word, depth - 1) for side in sides)
    if isinstance(node, cst.Call):
        return _is_scaled_call(script, node, word, depth)
    return isinstance(node, cst.IfExp) and (
        _is_scaled(script, node.body, word, depth) or _is_scaled(script, node.orelse, word, depth)
    )


def _is_scaled_by(
    script: Script,
    node: cst.CSTNode,
    value: cst.BaseExpression | None,
    how: How,
    word: str,
    depth: int,
) -> bool:
    if how is How.AUGMENTED and isinstance(node, cst.AugAssign):
        if isinstance(node.operator, (cst.DivideAssign, cst.MultiplyAssign)):
            return True
    if isinstance(node, cst.Param):  # a caller may divide what it hands over
        return any(_is_scaled(script, each, word, depth) for each in script.functions.given(node))
    return value is not None and how is not How.LOOP and _is_scaled(script, value, word, depth)


def _is_factor(script: Script, node: cst.BinaryOperation, word: str) -> bool:
    return _mentions(script, node, word) or any(
        isinstance(side, (cst.Name, cst.Attribute)) and _SCALES.search(script.code(side))
        for side in (node.left, node.right)
    )


def _is_scaled_call(script: Script, node: cst.Call, word: str, depth: int) -> bool:
    callee = script.functions.callee(node)
    if callee is not None:
        return _mentions(script, callee, word) or _adds_up(script, callee)
    if any(_mentions(script, arg, word) for arg in node.args):
        return True
    if method_of(node) in (*_DIVIDING, "sum"):
        return True
    inner = receiver_of(node, *_LOOKED_THROUGH)
    if inner is not None and script.kind(inner) in (Kind.TENSOR, Kind.LOSS):
        return _is_scaled(script, inner, word, depth - 1)
    return script.values.reductions.word(node) != "mean"


def _adds_up(script: Script, criterion: cst.CSTNode) -> bool:
    """Return whether a loss of this file consists of sums over samples."""
    for call in script.tree.within(criterion, cst.Call):
        if script.calls.at(call).method == "sum" and not call.args:
            if "mean" not in script.code(criterion):
                return True
        if script.values.reductions.word(call) != "mean":
            return True
    return False


def _rate_is_scaled(script: Script, word: str) -> bool:
    """Return whether a learning rate is computed from the window size."""
    for call in script.tree.all(cst.Call):
        if (script.name(call.func) or "").startswith("torch.optim."):
            if any(_mentions(script, arg, word) for arg in call.args):
                return True
            if any(_is_for_sums(script, arg.value) for arg in call.args):
                return True
    return any(
        _RATE.fullmatch(script.code(line.targets[0].target).rpartition(".")[2])
        and _mentions(script, line.value, word)
        for line in script.tree.all(cst.Assign)
    )


def _is_for_sums(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a learning rate is divided by the batch size, as for summed losses."""
    rate = script.values.value_of(node).node or node
    if not isinstance(rate, cst.BinaryOperation) or not isinstance(rate.operator, cst.Divide):
        return False
    return isinstance(rate.right, (cst.Name, cst.Attribute, cst.Subscript)) and bool(
        _BATCH.search(script.code(rate.right))
    )


def _is_scale_free(script: Script, window: GradientAccumulation | PassFunction) -> bool:
    """Return whether every optimizer is an Adam variant and nothing else reads the gradients."""
    region = script.tree.parent(window.around) or window.around
    if "clip_grad" in script.code(region if window.test is None else window.around):
        return False
    steps = [call for call in script.optimizers.steps if script.tree.inside(call, region)]
    stepped = [script.loops.stepped(call) for call in steps]
    made = [script.optimizers.made_by(node) if node is not None else None for node in stepped]
    calls = [call for each in made for call in each or ()]
    return bool(calls) and None not in made and all(_ignores_scale(script, c) for c in calls)


def _ignores_scale(script: Script, call: cst.Call) -> bool:
    kind = (script.name(call.func) or "").rpartition(".")[2]
    if kind not in _SCALE_FREE:
        return False
    decay = script.calls.at(call).argument("weight_decay", 4 if kind == "Adam" else None)
    return kind in _DECOUPLED or decay.state is State.ABSENT or decay.equals(0)
