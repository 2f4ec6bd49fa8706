"""Splitting an assignment of several values into one line each."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Edits, Script

_WIDTH: Final = 100


def split_lines(script: Script, given: dict[cst.Call, str]) -> Edits | None:
    """Split `x, y = x.cuda(), y.cuda()` into one line each if the line becomes too long.

    `given` holds the argument of each call.
    """
    assign = script.tree.smallest_statement(next(iter(given)))
    if len(given) == 1 or not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return None
    names, values = assign.targets[0].target, assign.value
    if not isinstance(names, cst.Tuple) or not isinstance(values, cst.Tuple):
        return None
    indent = script.edits.indent_of(assign)
    text = script.tree.text(assign)
    longer = sum(len(f", {argument}") for argument in given.values())
    if len(indent) + len(text) + longer <= _WIDTH or "\n" in text or "\r" in text:
        return None
    if not script.edits.stands_alone(script.tree.statement(assign)) or not _are_apart(
        script, names, values
    ):
        return None
    lines = []
    for name, value in zip(names.elements, values.elements, strict=True):
        span = script.span(value.value)
        code = script.tree.text(value.value)
        for call, argument in reversed(given.items()):
            if script.span(call) in span:
                at = script.edits.closing(call) - span.start
                code = f"{code[:at]}{', ' if call.args else ''}{argument}{code[at:]}"
        lines.append(f"{script.code(name.value)} = {code}")
    return script.edits.replace(assign, f"{script.edits.newline}{indent}".join(lines))


def _are_apart(script: Script, names: cst.Tuple, values: cst.Tuple) -> bool:
    """Return whether assigning one after the other gives the same as assigning all at once."""
    targets = [each.value for each in names.elements]
    if len(targets) != len(values.elements) or not all(isinstance(t, cst.Name) for t in targets):
        return False
    return not any(
        used.value == target.value
        for place, target in enumerate(targets)
        for other, value in enumerate(values.elements)
        for used in script.tree.within(value.value, cst.Name)
        if place != other and isinstance(target, cst.Name)
    )
