"""Casts of a batch between its loader and the device: what a cast makes is not pinned."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Edits, Move, Script, method_of, receiver_of

_CASTS: Final = ("float", "double", "long")


def uncast(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return the tensor below the casts of an expression: `x` of `x.float()`."""
    while isinstance(node, cst.Call) and not node.args and method_of(node) in _CASTS:
        owner = receiver_of(node)
        if owner is None:
            break
        node = owner
    return node


def cast_afterwards(script: Script, move: Move) -> Edits:
    """Return the edits that make a cast to float32 follow the copy, if the device can take float64.

    Other casts stay: devices turn numbers that are too large for an integer into other ones.
    """
    cast = move.moved
    if not isinstance(cast, cst.Call) or method_of(cast) != "float" or cast.lpar:
        return ()
    owner = receiver_of(cast)
    if owner is None or uncast(owner) is not owner:
        return ()
    if not script.program.moves.only_cuda(move.call):
        return ()
    link = script.tree.source.text[script.span(owner).end : script.span(cast).end]
    if "\n" in link or "#" in link:
        return ()
    at = script.tree.bare(move.call).end
    return (*script.edits.unlinked(cast), *script.edits.insert(at, link))
