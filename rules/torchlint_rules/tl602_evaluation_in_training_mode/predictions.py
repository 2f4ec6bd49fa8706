"""Predictions of a network with loaded weights that nothing puts into evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Mode, Script


def predictions(script: Script) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """Yield the first call of each network that a script only applies, in training mode."""
    if not script.program.purpose.may_be_applied_once:
        return
    covered = [each.node for each in script.evaluations.in_file]
    told: list[cst.BaseExpression] = []
    for call in script.tree.all(cst.Call):
        network = script.loops.module_call(call) if script.tree.is_own(call) else None
        if network is None or any(script.tree.inside(call, node) for node in covered):
            continue
        if not script.program.purpose.is_applied_once(script.span(call)):
            continue
        if any(script.modules.modes.same_network(network, each) for each in told):
            continue
        if _stays_in_training(script, call, network):
            told.append(network)
            yield call, network


def _stays_in_training(script: Script, call: cst.Call, network: cst.BaseExpression) -> bool:
    """Return whether a network that heeds its mode is as its class made it."""
    modes = script.modules.modes
    return (
        modes.depends_on_mode(network) is True
        and modes.mode(call, network) is Mode.TRAIN
        and modes.last_switch(call, network) is None
        and not modes.is_switched_to_eval(network)
        and not script.evaluations.needs_gradients(call)
        and not script.evaluations.unread.is_only_sized(call)
    )
