"""What a value is assigned to."""

from __future__ import annotations

import libcst as cst

from torchlint.api import Script


def target_of(script: Script, value: cst.CSTNode) -> tuple[cst.Assign, cst.BaseExpression] | None:
    """Return the line that assigns a value to one target, alone or as one of several pairs."""
    line = script.tree.smallest_statement(value)
    if not isinstance(line, cst.Assign) or len(line.targets) > 1:
        return None
    target = line.targets[0].target
    if line.value is value:
        return line, target
    for each in target.elements if isinstance(target, (cst.Tuple, cst.List)) else ():
        binding = script.scopes.stored(each.value)
        if binding is not None and binding.assigned is value:
            return line, each.value
    return None
