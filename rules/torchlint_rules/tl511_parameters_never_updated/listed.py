"""Layers in a Python list or dictionary of a network, which does not hold what is in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Fix, Kind, Script, receiver_of
from torchlint_rules.tl511_parameters_never_updated.unregistered import LAYERS, Part

_KEEPING: Final = frozenset({"to", "cuda", "cpu", "train", "eval"})
_GROWING: Final = ("append", "insert")
_PLAIN: Final = ("builtins.len", "builtins.range")
_WALKS: Final = ("builtins.enumerate", "builtins.zip", "builtins.reversed")
_MEMBERS: Final = ("items", "values")
_BUILT: Final = (cst.List, cst.ListComp, cst.Dict, cst.DictComp)


def listed(script: Script) -> Iterator[Part]:
    """Yield the lists of layers that a network only calls, and that nothing registers."""
    seen: set[tuple[cst.ClassDef, str]] = set()
    for site in script.tree.in_file(script.calls.of(*LAYERS)):
        owner = script.modules.passing.network(site.node)
        target = _target(script, site.node) if owner is not None else None
        if owner is None or target is None or (owner, target.attr.value) in seen:
            continue
        seen.add((owner, target.attr.value))
        mentions = script.whole.functions.attributes(target.attr.value)
        uses = [_use(script, owner, each) for each in mentions]
        if None in uses or "applied" not in uses:
            continue
        what = script.code(target)
        message = (
            f"`{what}` is no `nn.ModuleList`, so the network does not hold these layers: no "
            "optimizer gets their weights, and they never learn"
        )
        yield Part(owner, target, message, _fix(script, target))


def _target(script: Script, layer: cst.Call) -> cst.Attribute | None:
    """Return the attribute of `self` whose list or dictionary a layer becomes a member of."""
    holder = script.tree.parent(script.modules.passing.moved(layer))
    call = script.tree.parent(holder)
    if isinstance(holder, cst.Arg) and isinstance(call, cst.Call):
        grown = receiver_of(call, *_GROWING)
        return grown if isinstance(grown, cst.Attribute) and _is_own(script, grown) else None
    built = holder if isinstance(holder, _BUILT) else call
    line = script.tree.parent(built) if isinstance(built, _BUILT) else None
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return None
    target = line.targets[0].target
    return target if isinstance(target, cst.Attribute) and _is_own(script, target) else None


def _is_own(script: Script, node: cst.Attribute) -> bool:
    return script.functions.is_self(node.value)


def _use(script: Script, owner: cst.ClassDef, node: cst.Attribute) -> str | None:
    """Return what is done with a list at one place, None for what may register its layers."""
    if not _is_own(script, node) or script.scopes.class_of(node) is not owner:
        return None
    holder = script.tree.parent(node)
    if isinstance(holder, cst.AssignTarget):
        line = cst.ensure_type(script.tree.parent(holder), cst.Assign)
        return "made" if isinstance(line.value, _BUILT) else None
    call = script.tree.parent(holder)
    if isinstance(call, cst.Call) and receiver_of(call, *_GROWING) is node:
        return "made" if isinstance(call.args[-1].value, cst.Call) else None
    if isinstance(call, cst.Call) and receiver_of(call, *_MEMBERS) is node:
        return _walked(script, call)
    if isinstance(holder, cst.Subscript):
        return _member(script, holder)
    return _walked(script, node)


def _walked(script: Script, node: cst.BaseExpression) -> str | None:
    """Return what is done with the members of what a loop goes over."""
    holder = script.tree.parent(node)
    if isinstance(holder, cst.Arg):
        call = cst.ensure_type(script.tree.parent(holder), cst.Call)
        name = script.name(call.func)
        if name in _PLAIN:
            return "counted"
        return _walked(script, call) if name in _WALKS else None
    if not isinstance(holder, (cst.For, cst.CompFor)) or holder.iter is not node:
        return None
    bindings = [script.scopes.stored(name) for name in script.tree.within(holder.target, cst.Name)]
    readers = [use for each in bindings if each for use in script.scopes.readers(each)]
    found = [_member(script, each, index=True) for each in readers]
    if None in found:
        return None
    return "applied" if "applied" in found else "counted"


def _member(script: Script, node: cst.BaseExpression, index: bool = False) -> str | None:
    """Return what is done with one layer, or with the index of one."""
    holder = script.tree.parent(node)
    if isinstance(holder, cst.Call) and holder.func is node:
        return "applied"
    if isinstance(holder, cst.Attribute) and holder.attr.value in _KEEPING:
        return "moved"
    return (
        "counted"
        if index and isinstance(holder, (cst.Index, cst.BinaryOperation, cst.Comparison))
        else None
    )


def _fix(script: Script, target: cst.Attribute) -> Fix | None:
    """Return the fix that makes a `ModuleList` of a list that stands in one place."""
    holder = script.tree.parent(target)
    line = script.tree.parent(holder)
    if not isinstance(line, cst.Assign) or not isinstance(line.value, (cst.List, cst.ListComp)):
        return None
    if isinstance(line.value, cst.List) and not all(
        script.kind(each.value) is Kind.MODULE for each in line.value.elements
    ):
        return None  # a `ModuleList` takes nothing but modules
    imported = script.edits.importing("torch", "nn", at=line)
    if imported is None:
        return None
    text = f"{imported[0]}.ModuleList({script.code(line.value)})"
    because = "the layers start to learn, and the state dict holds them"
    edits = (*imported[1], *script.edits.replace(line.value, text))
    return Fix.unsafe("Make it a `ModuleList`", edits, because=because)
