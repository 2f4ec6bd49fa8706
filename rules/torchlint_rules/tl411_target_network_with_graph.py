"""TL411: a target, teacher or averaged network that records a graph in a training step."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Ancestry, Finding, Fix, Grad, Rule, Script
from torchlint_rules.shared.nograd import without_graph


class TargetNetworkWithGraph(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every call of a network that no optimizer holds, if it records in each step."""
        passes = list(script.modules.lineage.backward_passes())
        sent = {call for each in passes for call, _ in script.modules.lineage.of_loss(each).calls}
        told: set[cst.Call] = set()
        for backward in passes:
            for call, network in script.modules.lineage.of_loss(backward, recorded=False).calls:
                if call in told or not script.tree.is_own(call):
                    continue
                if not _records_for_nothing(script, call, network, backward):
                    continue
                inputs = script.modules.lineage.of_arguments(call)
                if call in sent and _may_carry_gradients(script, inputs, backward):
                    continue
                told.add(call)
                fix = _fix(script, call, backward)
                message = _message(script, network, call in sent)
                yield Finding(self.code, script.span(call), message, fix)


def _message(script: Script, network: cst.BaseExpression, sent: bool) -> str:
    cost = (
        "the backward pass computes gradients for it"
        if sent
        else "keeps its activations although its output is detached"
    )
    return (
        f"no optimizer holds `{script.tree.brief(network)}`, yet its call records a graph, and "
        f"{cost}: put the call under `torch.no_grad()`"
    )


def _records_for_nothing(
    script: Script, call: cst.Call, network: cst.BaseExpression, backward: cst.Call
) -> bool:
    """Return whether a call records the graph of a network that never learns."""
    if script.values.gradients.grad(call) is not Grad.ON:
        return False
    unheld = script.modules.unheld(network)
    if unheld is None or unheld.frozen is not False or not unheld.learns:
        return False
    if not (unheld.in_sight or unheld.copied):
        return False
    behind = script.modules.lineage.of_loss(backward).calls
    return any(script.modules.unheld(each) is None for _, each in behind)


def _may_carry_gradients(script: Script, inputs: Ancestry, backward: cst.Call) -> bool:
    """Return whether what a network is given may need gradients that flow through it."""
    if inputs.asks or not inputs.complete:
        return True
    home = script.scopes.home(backward)
    if any(script.scopes.home(parameter) is not home for parameter in inputs.given):
        return True
    return any(script.modules.unheld(network) is None for _, network in inputs.calls)


def _fix(script: Script, call: cst.Call, backward: cst.Call) -> Fix | None:
    """Return the fix of a line that only computes what needs no gradients."""
    line = script.tree.statement(call)
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return None
    assign = line.body[0]
    if not isinstance(assign, cst.Assign):
        return None
    if _may_carry_gradients(script, script.modules.lineage.of(assign.value), backward):
        return None
    return without_graph(script, "Compute it under `torch.no_grad()`", line)
