"""Whether the optimizer of a loss could apply the penalty as its `weight_decay`."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Script

_WITHOUT: Final = frozenset({"torch.optim.LBFGS", "torch.optim.SparseAdam"})


def can_decay(script: Script, penalty: cst.CSTNode) -> bool:
    """Return whether the optimizer of a loss with a penalty may take a `weight_decay`."""
    function = script.scopes.function(penalty)
    if function is not None and _is_minimised(script, function.name.value):
        return False
    return any(_may_decay(script, step) for step in script.optimizers.steps)


def _is_minimised(script: Script, objective: str) -> bool:
    """Return whether a function is passed to an optimizer that is not torch's."""
    return any(
        isinstance(arg.value, cst.Name)
        and arg.value.value == objective
        and (script.name(call.func) or "").startswith(("scipy.", "skopt.", "nevergrad."))
        for call in script.tree.all(cst.Call)
        for arg in call.args
    )


def _may_decay(script: Script, step: cst.Call) -> bool:
    stepped = script.loops.stepped(step)
    made = script.optimizers.made_by(stepped) if stepped is not None else None
    return not made or any(script.name(call.func) not in _WITHOUT for call in made)
