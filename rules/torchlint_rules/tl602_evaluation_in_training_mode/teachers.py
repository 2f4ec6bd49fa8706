"""Teachers in training mode: networks whose targets a training step only reads."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Grad, Mode, Script


def teachers(script: Script) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """Yield the calls in training steps of networks that never learn and heed their mode.

    Averages of a trained network run in training mode on purpose, for the statistics of a batch.
    """
    told: set[str] = set()
    for backward in script.modules.lineage.backward_passes():
        for call, network in script.modules.lineage.of_loss(backward, recorded=False).calls:
            path = script.code(network)
            if path not in told and script.tree.is_own(call) and _is_teacher(script, call, network):
                told.add(path)
                yield call, network


def _is_teacher(script: Script, call: cst.Call, network: cst.BaseExpression) -> bool:
    """Return whether a network that no optimizer holds surely runs in training mode."""
    if script.values.gradients.grad(call) is not Grad.OFF:
        return False
    unheld, modes = script.modules.unheld(network), script.modules.modes
    if unheld is None or unheld.copied or not (unheld.in_sight and unheld.learns):
        return False
    return (
        modes.depends_on_mode(network) is True
        and modes.mode(call, network) is Mode.TRAIN
        and not modes.is_switched_to_eval(network)
    )
