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
    return any(
        script.tree.order(use) > script.tree.order(root)
        and _is_written(script, use, deep)
        and not _are_apart(script, root, use)
        and any(binding in copied for binding in script.scopes.reaching(use))
        for use in script.tree.among(script.tree.spelled(root.value), home)
    )


def _are_apart(script: Script, one: cst.CSTNode, other: cst.CSTNode) -> bool:
    """Return whether a run of a function reaches only one of two places of it."""
    if any(True for _ in script.loops.around(one)):
        return False
    forks = (each for each in script.tree.ancestors(one) if isinstance(each, cst.If))
    around = next((each for each in forks if script.tree.inside(other, each)), None)
    return around is not None and (
        script.tree.inside(one, around.body) != script.tree.inside(other, around.body)
    )


def _depth(script: Script, root: cst.Name, moved: cst.BaseExpression) -> int:
    """Return the number of keys between a container and the moved tensor."""
    outer, inner = script.loaders.parts.of(root), script.loaders.parts.of(moved)
    return len(inner[0].steps) - len(outer[0].steps) if outer and inner else 0


def _is_written(script: Script, use: cst.Name, deep: int) -> bool:
    """Return whether a tensor at a given depth is modified in place at a use of the name."""
    write = script.values.writes.at(use)
    if write is None:
        return False
    return write.keys > deep if isinstance(write.node, cst.AssignTarget) else write.keys >= deep
