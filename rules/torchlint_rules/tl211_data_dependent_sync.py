"""TL211: every step forces a GPU sync to learn a tensor's values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import TENSORS, Finding, How, Rule, Script, State, method_of, receiver_of
from torchlint_rules.shared.graphbreaks import without_breaks
from torchlint_rules.shared.masks import is_mask
from torchlint_rules.shared.passwaits import Holder, tested_tensors
from torchlint_rules.shared.stepguards import step_guards

_SIZED: Final = {
    "nonzero": "torch.where(condition, a, b) needs no indices",
    "argwhere": "torch.where(condition, a, b) needs no indices",
    "unique": "count on the device, or do it before training",
    "unique_consecutive": "count on the device, or do it before training",
    "masked_select": "multiply by the mask, or use torch.where",
    "equal": "(a == b).all() stays on the device",
    "allclose": "compare on the device, and read the result now and then",
}
_WITH: Final = {"torch.bincount": ("minlength", 2)}
_NUMBERED: Final = ("builtins.range", "torch.arange", "builtins.sorted")
_REDUCED: Final = ("builtins.max", "builtins.min", "builtins.sum", "builtins.any", "builtins.all")
_WAITING: Final = frozenset(
    {*_WITH, *_NUMBERED, *_REDUCED, "torch.where", *(f"torch.{name}" for name in _SIZED)}
)
"""Functions that sync for their first argument."""
_PACK: Final = "torch.nn.utils.rnn.pack_padded_sequence"
_CLIP: Final = "torch.nn.utils.clip_grad_norm_"
_DISTRIBUTION: Final = re.compile(r"torch\.distributions\.[A-Z]\w*")


class DataDependentSync(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every operation in each step for which the host must know a tensor's values."""
        if script.program.devices.can_use_accelerator:
            yield from without_breaks(script, self._waits(script))

    def _waits(self, script: Script) -> Iterator[Finding]:
        for place, cost in (*_branches(script), *_selections(script), *_calls(script)):
            if script.loops.each_step(place):
                message = f"`{script.tree.brief(place)}` waits for the device in every step: {cost}"
                notes = script.loops.repetition.notes_on_callers(place)
                yield Finding(self.code, script.span(place), message, None, notes)


def _on_device(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a tensor that may be on the device."""
    return script.kind(node) in TENSORS and not script.values.placement.on_host(node)


def _counts_on_device(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a length certainly is a tensor, not only by convention."""
    return _on_device(script, node) and not any(
        binding.how in (How.PARAMETER, How.UNPACKED)
        for name in script.tree.within(node, cst.Name)
        for binding in script.scopes.reaching(name)
    )


# -- branches ---------------------------------------------------------------------


def _branches(script: Script) -> Iterator[tuple[cst.BaseExpression, str]]:
    """Yield the conditions that read a tensor."""
    holders: list[Holder] = [
        *script.tree.all(cst.If),
        *script.tree.all(cst.While),
        *script.tree.all(cst.Assert),
        *script.tree.all(cst.IfExp),
    ]
    guards = {id(each.holder) for each in step_guards(script)}
    for holder in holders:
        for part in tested_tensors(script, holder) if id(holder) not in guards else ():
            if _may_repeat(script, part):
                yield part, "choose on the device with torch.where, or look now and then"


def _may_repeat(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node is in a function or a loop."""
    around = (cst.FunctionDef, cst.For, cst.While)
    return any(isinstance(outer, around) for outer in script.tree.ancestors(node))


# -- selections -------------------------------------------------------------------


def _selections(script: Script) -> Iterator[tuple[cst.Subscript, str]]:
    """Yield the subscripts by a mask, and those whose bounds are tensors."""
    for item in script.tree.all(cst.Subscript):
        if not any(_may_select(script, element.slice) for element in item.slice):
            continue
        if isinstance(script.tree.parent(item), (cst.AssignTarget, cst.AugAssign, cst.Del)):
            continue
        if script.kind(item.value) not in TENSORS:
            continue
        for element in item.slice:
            index = element.slice
            if isinstance(index, cst.Index):
                if is_mask(script, index.value) and _on_device(script, index.value):
                    yield item, "multiply by the mask, or use torch.where"
                    break
            elif isinstance(index, cst.Slice):
                bounds = [bound for bound in (index.lower, index.upper) if bound is not None]
                if any(_counts_on_device(script, bound) for bound in bounds):
                    yield item, "keep lengths on the host too"
                    break


def _may_select(script: Script, index: cst.BaseSlice) -> bool:
    """Return whether an index is a mask, or a range without literal bounds."""
    if isinstance(index, cst.Index):
        return is_mask(script, index.value)
    bounds = (index.lower, index.upper) if isinstance(index, cst.Slice) else ()
    return any(not isinstance(each, (cst.Integer, type(None))) for each in bounds)


# -- calls --------------------------------------------------------------------------


def _calls(script: Script) -> Iterator[tuple[cst.Call, str]]:
    """Yield the calls that force a sync, each with its replacement."""
    for site in script.calls.of_methods(*_SIZED):
        call = site.node
        cost = _cost_of_method(script, call) if not script.name(call.func) else None
        if cost is not None:
            yield call, cost
    for site in script.calls.of(_CLIP, _PACK, *_WAITING):
        cost = _cost_of_function(script, site.node, site.name or "")
        if cost is not None:
            yield site.node, cost
    for site in script.calls.of(*filter(_DISTRIBUTION.fullmatch, script.calls.called)):
        if site.node.args and site.argument("validate_args").state is State.ABSENT:
            yield site.node, "pass validate_args=False"


def _cost_of_method(script: Script, call: cst.Call) -> str | None:
    tensor = receiver_of(call, *_SIZED)
    return _SIZED[method_of(call)] if tensor is not None and _on_device(script, tensor) else None


def _is_of_mapping(node: cst.BaseExpression) -> bool:
    """Return whether an expression is the values of a dictionary."""
    func = node.func if isinstance(node, cst.Call) else None
    return isinstance(func, cst.Attribute) and func.attr.value == "values"


def _cost_of_function(script: Script, call: cst.Call, name: str) -> str | None:
    first = call.args[0].value if call.args else None
    last = name.rpartition(".")[2]
    if name == _CLIP:
        strict = script.calls.at(call).argument("error_if_nonfinite")
        return "leave out error_if_nonfinite=True" if strict.equals(True) else None
    if name == _PACK:
        lengths = script.calls.at(call).given("lengths")
        known = lengths is None or not _counts_on_device(script, lengths.value)
        return None if known else "keep the lengths on the host"
    if first is None or not _on_device(script, first):
        return None
    if name in _NUMBERED:
        sure = _counts_on_device(script, first)
        return "keep the number on the host too" if sure else None
    whole = len(call.args) == 1 and not _is_of_mapping(first)
    if name in _REDUCED and whole and _counts_on_device(script, first):
        return f"`.{last}()` of the tensor is one operation"
    if name in _WITH:
        word, place = _WITH[name]
        given = script.calls.at(call).argument(word, place)
        return f"pass {word}" if given.state is State.ABSENT else None
    if name == "torch.where":
        return _SIZED["nonzero"] if len(call.args) == 1 else None
    return _SIZED.get(last)
