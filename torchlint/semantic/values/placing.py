"""Parameters that are devices, told by what they are used for rather than by their names."""

from __future__ import annotations

import libcst as cst

from torchlint.semantic.calls.functions import Functions

__all__ = ["places_a_network"]


def places_a_network(functions: Functions, parameter: cst.Param) -> bool:
    """Return whether a statement `x.to(p)` stands alone: only networks move in place."""
    tree = functions.tree
    function = tree.parent(tree.parent(parameter) or parameter)
    word = parameter.name.value
    for method in functions.attributes("to"):
        call = tree.parent(method)
        if not isinstance(call, cst.Call) or len(call.args) != 1 or "type" in word:
            continue
        given = call.args[0].value
        if not isinstance(given, cst.Name) or given.value != word:
            continue
        if isinstance(tree.parent(call), cst.Expr) and functions.scopes.function(call) is function:
            return True
    return False
