"""Loops that run a network again and again, and use no graph of its outputs."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Grad, GraphUse, Role, Script


def inferences(script: Script) -> Iterator[tuple[cst.For | cst.While, cst.Call]]:
    """Yield the loops outside training and evaluation that infer, each with its first call."""
    covered = [each.node for each in script.evaluations.all]
    for loop in script.loops.of(Role.OTHER):
        if any(script.tree.inside(loop.node, node) for node in covered):
            continue
        calls = [
            call
            for call in script.functions.own(loop.node.body, cst.Call)
            if script.loops.module_call(call) is not None
            and next(script.loops.around(call), None) is loop
        ]
        if not calls or script.evaluations.needs_gradients(loop.node.body):
            continue
        if _are_unused(script, calls):
            yield loop.node, calls[0]


def _are_unused(script: Script, calls: list[cst.Call]) -> bool:
    """Return whether networks with gradients on record graphs that nothing goes back through."""
    return all(
        script.values.gradients.grad(call) is Grad.ON
        and script.evaluations.escapes.use_of(call) is GraphUse.DROPPED
        for call in calls
    )
