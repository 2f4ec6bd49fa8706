"""Uses of a tensor: copied, returned, passed on or written to."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import libcst as cst

from torchlint.api import Kind, Script

_COPYING: Final = frozenset(
    "clone sum mean std var max min argmax argmin item tolist add sub mul div pow sqrt exp log "
    "abs clamp eq ne gt lt repeat one_hot".split()
)
_SHARING: Final = frozenset(
    "float long int double half bfloat16 bool to view reshape permute transpose unsqueeze "
    "squeeze contiguous t flatten type cpu expand narrow".split()
)
_FACTS: Final = frozenset("shape dtype device ndim size dim numel".split())
_STACKING: Final = frozenset(
    "torch.stack torch.cat torch.hstack torch.vstack torch.nn.functional.one_hot "
    "torch.utils.data.default_collate torch.nn.utils.rnn.pad_sequence".split()
)


class TensorUse(IntEnum):
    """What becomes of a tensor, the worst last."""

    COPIED = 0
    RETURNED = 1
    UNSEEN = 2
    WRITTEN = 3


def tensor_use(script: Script, node: cst.BaseExpression) -> TensorUse:
    """Return what becomes of a tensor: copied, returned, passed on or written to."""
    holder = script.tree.parent(node)
    if holder is None:
        return TensorUse.UNSEEN
    if script.values.writes.at(node) is not None:
        return TensorUse.WRITTEN
    if isinstance(holder, (cst.BinaryOperation, cst.Comparison, cst.UnaryOperation)):
        return TensorUse.COPIED
    if isinstance(holder, cst.Return):
        return TensorUse.RETURNED
    if isinstance(holder, cst.Attribute):
        return _use_of_attribute(script, holder)
    if isinstance(holder, cst.Subscript):
        return _use_of(script, holder)
    if isinstance(holder, cst.Arg):
        outer = script.tree.parent(holder)
        name = script.name(outer.func) if isinstance(outer, cst.Call) else None
        return TensorUse.COPIED if name in _STACKING else TensorUse.UNSEEN
    if isinstance(holder, (cst.Element, cst.DictElement)):
        outer = script.tree.parent(holder)
        inside = isinstance(outer, (cst.Tuple, cst.List, cst.Dict))
        return _use_of(script, outer) if inside else TensorUse.UNSEEN  # type: ignore[arg-type]
    if isinstance(holder, (cst.ListComp, cst.GeneratorExp, cst.IfExp)):
        return _use_of(script, holder)
    if isinstance(holder, cst.AugAssign):
        return TensorUse.COPIED
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        return _use_of_target(script, holder.targets[0].target, holder)
    return TensorUse.UNSEEN


def _use_of(script: Script, node: cst.BaseExpression) -> TensorUse:
    return script.answer(tensor_use, node, TensorUse.UNSEEN)


def _use_of_attribute(script: Script, holder: cst.Attribute) -> TensorUse:
    word = holder.attr.value
    call = script.tree.parent(holder)
    if word in _FACTS:
        return TensorUse.COPIED
    if not isinstance(call, cst.Call) or call.func is not holder:
        return _use_of(script, holder) if word == "T" else TensorUse.UNSEEN
    if word in _COPYING:
        return TensorUse.COPIED
    return _use_of(script, call) if word in _SHARING else TensorUse.UNSEEN


def _use_of_target(script: Script, target: cst.BaseExpression, line: cst.Assign) -> TensorUse:
    """Follow a tensor into a name or a local dictionary."""
    root = target.value if isinstance(target, cst.Subscript) else target
    if not isinstance(root, cst.Name):
        return TensorUse.UNSEEN
    if isinstance(target, cst.Subscript) and script.kind(root) is not Kind.MAPPING:
        return TensorUse.UNSEEN
    found = TensorUse.COPIED
    for use in script.tree.within(script.scopes.home(line), cst.Name):
        later = script.tree.order(use) > script.tree.order(line)
        if use.value != root.value or script.tree.inside(use, line) or not later:
            continue
        holder = script.tree.parent(use)
        if isinstance(holder, cst.AssignTarget):
            continue
        item = isinstance(target, cst.Subscript) and isinstance(holder, cst.Subscript)
        if item and isinstance(script.tree.parent(holder) if holder else None, cst.AssignTarget):
            continue
        found = max(found, _use_of(script, use))
    return found
