"""Loops that generate: a network runs again and again on what was chosen by its output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Grad, GraphUse, Role, Script, word_of
from torchlint_rules.tl601_evaluation_with_gradients.predictions import is_called_with_graph

_CHOOSING: Final = frozenset({"argmax", "multinomial"})


def generations(script: Script) -> Iterator[tuple[cst.For | cst.While, cst.Call]]:
    """Yield the loops that generate and record graphs, each with the first call of a network."""
    covered: list[cst.CSTNode] = [each.node for each in script.evaluations.in_file]
    for loop in script.loops.in_file(Role.OTHER):
        at = loop.node
        if any(script.tree.inside(at, node) or script.tree.inside(node, at) for node in covered):
            continue
        if script.loops.owner(loop.node) != "none":
            continue
        if script.loops.environments.are_stepped_in(loop.node.body):
            continue
        function = script.scopes.function(at)
        if function is not None and not is_called_with_graph(script, function):
            continue
        own = [*script.functions.own(loop.node.body, cst.Call)]
        calls = [call for call in own if script.loops.module_call(call) is not None]
        if not calls or _CHOOSING.isdisjoint(map(word_of, own)):
            continue
        unused = all(
            script.values.gradients.grad(call) is Grad.ON
            and script.evaluations.escapes.use_of(call) is GraphUse.DROPPED
            for call in calls
        )
        if unused and not script.evaluations.needs_gradients(loop.node.body):
            covered.append(loop.node)
            yield loop.node, calls[0]
