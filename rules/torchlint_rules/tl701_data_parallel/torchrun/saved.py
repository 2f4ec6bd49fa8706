"""Checkpoints: a torchrun script must not store the wrapper itself."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Script
from torchlint_rules.tl701_data_parallel.torchrun.shape import Shape
from torchlint_rules.tl701_data_parallel.torchrun.wrap import ObstacleError

_STORED: Final = "it would store the wrapper, which plain Python cannot load"
_STORES: Final = frozenset(
    "save saver dump dumps checkpoint checkpointer export stopping stopper deepcopy copy".split()
)
_SAME_NETWORK: Final = frozenset("cpu to eval half float cuda train".split())
_HOLDERS: Final = (cst.Dict, cst.List, cst.Tuple, cst.Set)


def refuse_stored_wrappers(script: Script, shape: Shape) -> None:
    """Raise `ObstacleError` where the wrapped network itself, not its weights, may be stored."""
    for name in script.tree.all(cst.Name):
        if not script.scopes.reads(name) or not shape.is_wrapped(script, name):
            continue
        holder = script.tree.parent(name)
        word = holder.attr.value if isinstance(holder, cst.Attribute) else None
        if word is None or word in _SAME_NETWORK:
            line = script.tree.smallest_statement(name)
            for outer in script.tree.ancestors(name):
                if outer is line:
                    break
                if isinstance(outer, _HOLDERS) or _stores(script, outer):
                    raise ObstacleError(line, _STORED)


def _stores(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node is a call of another file's function that may store its arguments."""
    if not isinstance(node, cst.Call) or script.functions.callee(node) is not None:
        return False
    return not _STORES.isdisjoint(script.names.words(script.code(node.func)))
