"""Forward passes in a training loop that only compute metrics or display something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Grad, GraphUse, Mode, Role, Script, method_of

_LOOK: Final = "a look at its output only"


def asides(script: Script) -> Iterator[tuple[cst.Call, str]]:
    """Yield the forward calls beside a training, each with what alone it is run for."""
    for loop in script.loops.of(Role.TRAIN_BATCH, Role.EPOCH):
        for call in script.tree.within(loop.node.body, cst.Call):
            network = script.loops.module_call(call) if script.tree.is_own(call) else None
            if network is None or script.values.gradients.grad(call) is not Grad.ON:
                continue
            if script.evaluations.needs_gradients(script.tree.statement(call)):
                continue
            if script.evaluations.escapes.is_cut_off(call):
                if loop is script.loops.batch_loop(call) and _compares(script, call):
                    yield call, "a metric only"
            elif next(script.loops.around(call), None) is loop and (
                _looks_in_eval(script, loop.node, call, network)
                or _looks_now_and_then(script, call)
            ):
                yield call, _LOOK
    for step in script.loops.steps.all:
        function = script.scopes.function(step.backward)
        if function is None or next(script.loops.around(step.backward), None) is not None:
            continue
        for call in script.functions.own(function, cst.Call):
            follows = script.tree.order(call) > script.tree.order(step.backward)
            if follows and _looks_after_step(script, function, call):
                yield call, _LOOK


def _looks_after_step(script: Script, function: cst.FunctionDef, call: cst.Call) -> bool:
    """Return whether a function that makes one step runs a network after it, in evaluation mode."""
    network = script.loops.module_call(call) if script.tree.is_own(call) else None
    return (
        network is not None
        and script.values.gradients.grad(call) is Grad.ON
        and next(script.loops.around(call), None) is None
        and not script.evaluations.needs_gradients(script.tree.statement(call))
        and _looks_in_eval(script, function, call, network)
    )


def _looks_now_and_then(script: Script, call: cst.Call) -> bool:
    """Return whether a batch loop makes a forward call only now and then, as a check."""
    loop = script.loops.batch_loop(call)
    for outer in script.tree.ancestors(call):
        if loop is None or outer is loop.node:
            return False
        if isinstance(outer, cst.If) and "%" in script.code(outer.test):
            region = outer.body
            return (
                script.tree.inside(call, region)
                and script.evaluations.only_measures(region)
                and not script.evaluations.needs_gradients(region)
                and script.evaluations.escapes.use(region, [call]) is GraphUse.DROPPED
            )
    return False


def _looks_in_eval(
    script: Script, region: cst.CSTNode, call: cst.Call, network: cst.BaseExpression
) -> bool:
    """Return whether a forward call comes after `eval()` in code that trains."""
    last = script.modules.modes.last_switch(call, network)
    return (
        last is not None
        and last.mode is Mode.EVAL
        and last.network is not None
        and script.tree.inside(last.call, region)
        and script.evaluations.escapes.use(script.tree.statement(call), [call]) is GraphUse.DROPPED
    )


def _compares(script: Script, call: cst.Call) -> bool:
    """Return whether the line of a call only compares its output."""
    line = script.tree.statement(call)
    compared = any(True for _ in script.tree.within(line, cst.Comparison))
    compared = compared or any(method_of(e) == "eq" for e in script.tree.within(line, cst.Call))
    return compared and isinstance(line, cst.SimpleStatementLine)
