"""Writes to a host tensor whose copy to the device may still be running."""

from __future__ import annotations

import libcst as cst

from torchlint.api import Move, Script


def is_written_after(script: Script, move: Move) -> bool:
    """Return whether the host tensor is written to after the line that copies it."""
    root: cst.BaseExpression = move.moved
    while isinstance(root, (cst.Subscript, cst.Attribute, cst.Call)):
        root = root.func if isinstance(root, cst.Call) else root.value
    if not isinstance(root, cst.Name):
        return True
    home = script.scopes.home(move.call)
    copied = script.scopes.reaching(root)
    deep = _depth(script, root, move.moved)
    word = root.value
    changed = script.once(_changed).get(word, ()) if deep >= 0 else script.tree.spelled(word)
    return any(
        script.tree.order(use) > script.tree.order(root)
        and _is_written(script, use, deep)
        and any(binding in copied for binding in script.scopes.reaching(use))
        for use in script.tree.among(changed, home)
    )


def _changed(script: Script) -> dict[str, list[cst.Name]]:
    """Return the names whose value is modified in place at any depth, by name."""
    changed: list[cst.CSTNode] = [each.target for each in script.tree.all(cst.AugAssign)]
    targets = (each.target for each in script.tree.all(cst.AssignTarget))
    changed += [target for target in targets if type(target) is cst.Subscript]
    for call in script.tree.all(cst.Call):
        if type(call.func) is cst.Attribute and call.func.attr.value.endswith("_"):
            changed.append(call.func.value)
    found: dict[str, list[cst.Name]] = {}
    for name in sorted(filter(None, map(_changed_name, changed)), key=script.tree.order):
        found.setdefault(name.value, []).append(name)
    return found


def _changed_name(node: cst.CSTNode) -> cst.Name | None:
    """Return the name of a container of which an item at any depth is modified."""
    while type(node) is cst.Subscript:
        node = node.value
    return node if type(node) is cst.Name else None


def _depth(script: Script, root: cst.Name, moved: cst.BaseExpression) -> int:
    """Return the number of keys between a container and the moved tensor."""
    outer, inner = script.loaders.parts.of(root), script.loaders.parts.of(moved)
    return len(inner[0].steps) - len(outer[0].steps) if outer and inner else 0


def _is_written(script: Script, use: cst.Name, deep: int) -> bool:
    """Return whether a tensor at a given depth is modified in place at a use of the name."""
    at: cst.CSTNode = use
    holder = script.tree.parent(at)
    keys = 0
    while isinstance(holder, cst.Subscript) and holder.value is at:
        at, holder, keys = holder, script.tree.parent(holder), keys + 1
    if isinstance(holder, cst.AugAssign):
        return holder.target is at and keys >= deep
    if isinstance(holder, cst.AssignTarget):
        return keys > deep
    return (
        keys >= deep
        and isinstance(holder, cst.Attribute)
        and holder.attr.value.endswith("_")
        and holder.attr.value != "requires_grad_"
        and isinstance(script.tree.parent(holder), cst.Call)
    )
