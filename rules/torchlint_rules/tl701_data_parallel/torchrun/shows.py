"""Calls that show numbers to the user."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import How, Script, method_of, receiver_of

_TELLING: Final = frozenset(
    "set_postfix set_description set_postfix_str add_scalar add_scalars add_image add_images "
    "add_histogram info debug warning log progress_bar write display".split()
)
_BARS: Final = "tqdm"


def shows(script: Script, call: cst.Call) -> bool:
    """Return whether a call shows its arguments, or updates a progress bar."""
    name = script.name(call.func)
    if name == "builtins.print" or (name or "").startswith(("wandb.", "logging.")):
        return True
    if isinstance(call.func, cst.Name):
        return call.func.value in _TELLING
    owner = receiver_of(call)
    return owner is not None and (method_of(call) in _TELLING or _is_bar(script, owner))


def _is_bar(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a progress bar."""
    if not isinstance(node, cst.Name):
        return False
    return any(
        isinstance(binding.value, cst.Call)
        and binding.how in (How.ASSIGN, How.WITH)
        and (script.name(binding.value.func) or "").partition(".")[0] == _BARS
        for binding in script.scopes.reaching(node)
    )
