"""Uses of a state dict that an earlier iteration stored."""

from __future__ import annotations

import libcst as cst

from torchlint.api import Binding, Loop, Script


def stays(script: Script, line: cst.Assign, bound: Binding, loop: Loop, use: cst.Name) -> bool:
    """Return whether later iterations without an improvement save the stored state dict."""
    guard = next(
        (outer for outer in script.tree.ancestors(line) if isinstance(outer, cst.If)), None
    )
    if guard is None or guard.orelse is not None or script.tree.inside(use, guard):
        return False
    others = [each for each in script.scopes.reaching(use) if each is not bound]
    return (
        script.tree.inside(guard, loop.node)
        and script.tree.inside(use, loop.node)
        and bound in script.scopes.reaching(use)
        and is_saved(script, use)
        and not any(script.tree.inside(each.node, loop.node) for each in others)
    )


def is_saved(script: Script, use: cst.Name) -> bool:
    """Return whether a use passes its value to `torch.save`."""
    outer = script.tree.taker(use)
    return isinstance(outer, cst.Call) and script.name(outer.func) == "torch.save"
