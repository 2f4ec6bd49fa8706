"""Layers that a network gets after an optimizer has taken its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from torchlint.api import Optimizer, Script, receiver_of
from torchlint_rules.tl511_parameters_never_updated.unregistered import LAYERS


class Replaced(NamedTuple):
    """A layer that an optimizer does not hold, since it is newer."""

    optimizer: Optimizer
    network: cst.BaseExpression
    target: cst.BaseExpression


def replaced(script: Script) -> Iterator[Replaced]:
    """Yield the layers, or whole networks, that replace those whose parameters are taken."""
    for optimizer in script.optimizers:
        given = optimizer.given("params", 0)
        network = receiver_of(given.value, "parameters") if given is not None else None
        if network is None or optimizer.gets_more_groups or not script.tree.is_own(optimizer.node):
            continue
        for line in _later(script, optimizer.node):
            target = line.targets[0].target
            if not _is_part(script, target, network) or _is_taken_again(script, target, network):
                continue
            if _is_new(script, line.value, network):
                yield Replaced(optimizer, network, target)


def _later(script: Script, made: cst.CSTNode) -> Iterator[cst.Assign]:
    """Yield the assignments behind the creation of an optimizer in its block."""
    statement = script.tree.statement(made)
    block = script.tree.parent(statement)
    for line in block.body if isinstance(block, (cst.IndentedBlock, cst.Module)) else ():
        small = line.body if isinstance(line, cst.SimpleStatementLine) else ()
        for each in small if script.tree.order(line) > script.tree.order(statement) else ():
            if isinstance(each, cst.Assign) and len(each.targets) == 1:
                yield each


def _is_taken_again(
    script: Script, target: cst.BaseExpression, network: cst.BaseExpression
) -> bool:
    """Return whether code asks a network for its parameters again after an assignment."""
    path = script.code(network)
    return any(
        script.code(asked.value) == path and script.tree.order(asked) > script.tree.order(target)
        for asked in script.whole.functions.attributes("parameters")
    )


def _is_part(script: Script, target: cst.BaseExpression, network: cst.BaseExpression) -> bool:
    """Return whether an assignment changes a network, or a layer in it."""
    path, whole = script.code(target), script.code(network)
    return isinstance(target, (cst.Name, cst.Attribute)) and (
        path == whole or path.startswith(f"{whole}.")
    )


def _is_new(script: Script, value: cst.BaseExpression, network: cst.BaseExpression) -> bool:
    """Return whether a value is a layer with weights of its own, made from nothing older."""
    calls = [*script.tree.within(value, cst.Call)]
    names = [script.name(call.func) for call in calls]
    own = any(script.functions.instance_of(call) is not None for call in calls)
    if not own and not any(name in LAYERS for name in names):
        return False
    root = script.code(network).partition(".")[0]
    firsts = (call.args[0].value for call in calls if call.args)
    return not any(
        isinstance(each, (cst.Name, cst.Attribute)) and script.code(each) == script.code(network)
        for each in firsts
    ) and root not in [script.code(call.func).partition(".")[0] for call in calls]
