"""TL310: handwritten attention with two matmuls and a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Attention, Finding, Fix, Kind, Note, Role, Rule, Script, receiver_of
from torchlint_rules.tl310_handwritten_attention.attention import FUNCTION, Rewriting, kept_where

_FUSED: Final = ("flash_attn", "memory_efficient_attention", "xformers", "flex_attention")
_MAKERS: Final = frozenset({
    "torch.tensor", "torch.as_tensor", "torch.Tensor", "torch.FloatTensor",
})  # fmt: skip

_ADDED: Final = ("mask", "bias", "alibi")
"""Parts of the names of what is added to scores: masks, and biases of positions."""


class HandwrittenAttention(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every handwritten attention that one function can compute."""
        for attention in script.values.attentions.all():
            if _trains_on_host(script) or script.once(_replaces_fused):
                return
            if _is_derived_twice(script, attention):
                continue
            hint = _hint(script, attention)
            if hint is None or any(_is_fused(script, at) for at in _around(script, attention)):
                continue
            fix = None if hint else Rewriting(script, attention).fix()
            message = (
                "hand-written attention materializes the full T x T matrix; use "
                f"`F.{FUNCTION}`{hint}"
            )
            notes = tuple(_left_behind(script, attention, fix)) if fix is not None else ()
            yield Finding(self.code, script.span(attention.softmax), message, fix, notes)


def _left_behind(script: Script, attention: Attention, fix: Fix) -> Iterator[Note]:
    """Yield a note about each mask that a class keeps and nothing reads after the fix."""
    owner = script.scopes.class_of(attention.softmax)
    if owner is None:
        return
    conditions = [mask.condition for mask in attention.masks]
    written = " ".join(edit.text for edit in fix.edits)
    for site in script.calls.of_methods("register_buffer"):
        name = script.calls.at(site.node).argument("name", 0).literal
        if not isinstance(name, str) or f"self.{name}" in written:
            continue
        reads = [
            each
            for each in script.tree.within(owner, cst.Attribute)
            if script.code(each) == f"self.{name}"
        ]
        if reads and all(
            any(script.tree.inside(read, condition) for condition in conditions) for read in reads
        ):
            message = f"nothing reads `self.{name}` after the fix; checkpoints may hold it"
            yield Note(script.span(site.node), message)


def _trains_on_host(script: Script) -> bool:
    return not script.program.devices.can_use_accelerator and bool(
        script.loops.of(Role.TRAIN_BATCH, Role.EPOCH)
    )


def _replaces_fused(script: Script) -> bool:
    """Return whether code in view puts a function of its own in the place of the fused one."""
    assigned = (each.target for each in script.tree.all(cst.AssignTarget))
    texts = (each.value for each in script.tree.all(cst.Arg))
    return any(
        isinstance(each, cst.Attribute) and each.attr.value == FUNCTION for each in assigned
    ) or any(
        isinstance(each, cst.SimpleString)
        and str(each.evaluated_value).rpartition(".")[2] == FUNCTION
        for each in texts
    )


def _is_derived_twice(script: Script, attention: Attention) -> bool:
    """Return whether gradients of gradients may be taken through an attention."""
    for arg in script.tree.all(cst.Arg):
        if arg.keyword is None or arg.keyword.value != "create_graph":
            continue
        call = script.tree.parent(arg)
        if script.code(arg.value) != "False" and isinstance(call, cst.Call):
            if not _passes_by(script, call, attention):
                return True
    return False


def _passes_by(script: Script, slope: cst.Call, attention: Attention) -> bool:
    """Return whether only networks without an attention are behind what is derived."""
    site = script.calls.at(slope)
    given = site.given("outputs", 0)
    value = given.value if given is not None else site.receiver
    found = script.modules.lineage.of(value) if value is not None else None
    if found is None or not found.complete or not found.calls:
        return False
    roots = [root for _, network in found.calls for root in script.modules.roots(network)]
    return all(
        isinstance(root, cst.Call)
        and script.functions.instance_of(root) is not None
        and not any(
            script.tree.inside(attention.softmax, region)
            for region in script.modules.sizes.regions(root)
        )
        for root in roots
    )


def _around(script: Script, attention: Attention) -> Iterator[cst.ClassDef | cst.FunctionDef]:
    """Yield the class or the function of an attention, and the classes that can replace it."""
    owner = script.scopes.class_of(attention.softmax)
    function = script.scopes.function(attention.softmax)
    if owner is None and function is not None:
        yield function
    calls = script.functions.callers(function) if owner is None and function is not None else ()
    owners = {owner, *(script.scopes.class_of(call) for call in calls)} - {None}
    for each in script.tree.all(cst.ClassDef) if owners else ():
        if not owners.isdisjoint(script.functions.lineage(each)):
            yield each


def _is_fused(script: Script, around: cst.CSTNode) -> bool:
    if any(word in script.code(around) for word in _FUSED):
        return True
    named = (
        node
        for node in script.tree.within(around, cst.Attribute)
        if node.attr.value == FUNCTION and script.functions.definition(node) is None
    )
    quoted = (
        text for text in script.tree.within(around, cst.SimpleString) if FUNCTION in text.value
    )
    return next(named, None) is not None or next(quoted, None) is not None


def _is_constant(script: Script, factor: cst.BaseExpression) -> bool:
    """Return whether a tensor is a number, or its root: `torch.sqrt(torch.tensor(8.0))`."""
    value = script.values.value_of(factor).node or factor
    value = receiver_of(value, "to", "cuda") or value
    if isinstance(value, cst.Call) and script.name(value.func) == "torch.sqrt" and value.args:
        value = script.values.value_of(value.args[0].value).node or value.args[0].value
    if not isinstance(value, cst.Call) or script.name(value.func) not in _MAKERS or not value.args:
        return False
    given = value.args[0].value
    if isinstance(given, cst.List) and len(given.elements) == 1:
        given = given.elements[0].value
    parts = (given.left, given.right) if isinstance(given, cst.BinaryOperation) else (given,)
    return all(script.kind(part) not in (Kind.TENSOR, Kind.LOSS) for part in parts)


def _hint(script: Script, attention: Attention) -> str | None:
    """Return what the call needs that no fix can provide, None if it is no such attention."""
    factor = attention.factor
    hint = ""
    if factor is not None and not script.values.numbers.is_number(factor):
        named = script.code(factor)
        if "mask" in named.lower():
            return None
        hint = f" with `scale={'1 / ' if attention.divides else ''}{named}`"
        if script.kind(factor) in (Kind.TENSOR, Kind.LOSS, Kind.MODULE):
            if not _is_constant(script, factor):
                return None
            hint = f" with `{named}` as a number for its `scale`"
    for mask in attention.masks:
        condition = script.code(mask.condition)
        if mask.fill is None:
            is_told = any(word in condition.lower() for word in _ADDED)
            if not is_told and not script.values.scores.is_causal(mask.condition):
                return None
            hint = f" with `attn_mask={condition}`"
        elif script.values.scores.lowest(mask) is None:
            if script.values.value_of(mask.fill).is_literal or script.values.numbers.is_number(
                mask.fill
            ):
                return None
            hint = f" with `attn_mask={kept_where(script, mask)}`"
    if len(attention.masks) > 1:
        hint = " with one `attn_mask` that joins both masks"
    if not attention.heads_apart:
        return " on tensors whose last dimensions are positions and width"
    return hint or ("" if attention.plain else " with its `scale` or `attn_mask`")
