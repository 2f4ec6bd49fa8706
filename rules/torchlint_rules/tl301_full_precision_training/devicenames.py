"""The names under which a script holds a `torch.device`."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Script

_MAKERS: Final = ("torch.device", "torch.accelerator.current_accelerator")


def visible_device(script: Script, place: cst.CSTNode, line: cst.CSTNode) -> str:
    """Return the name of a `torch.device` that is visible at a line, empty without one."""
    scope = script.scopes.scope(place)
    named = script.once(_named_devices)
    running = [*script.scopes.blocks(line), *(each.body for each in script.loops.guard.guards())]
    for name in (*scope.bindings, *script.scopes.module.bindings):
        if name not in named or script.scopes.lookup(name, scope) is None:
            continue
        bindings = script.scopes.reaching_name(name, line, scope)
        values = [each.value for each in bindings]
        made = [script.name(each.func) for each in values if isinstance(each, cst.Call)]
        if values and len(made) == len(values) and all(each in _MAKERS for each in made):
            if script.scopes.is_certain(bindings, running):
                return name
    return ""


def _named_devices(script: Script) -> frozenset[str]:
    """Return the names that hold a device anywhere in the script."""
    made = {id(site.node) for site in script.calls.of(*_MAKERS)}
    bound = (each for each in script.scopes.bindings() if id(each.value) in made)
    return frozenset(each.name for each in bound if "." not in each.name)
