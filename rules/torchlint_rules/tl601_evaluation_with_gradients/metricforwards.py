"""Forward passes in a training loop that only compute metrics or display something."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Grad, GraphUse, Loop, Mode, Role, Script, method_of


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
                _looks_in_eval(script, loop, call, network) or _looks_now_and_then(script, call)
            ):
                yield call, "a look at its output only"


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


def _looks_in_eval(script: Script, loop: Loop, call: cst.Call, network: cst.BaseExpression) -> bool:
    """Return whether a forward call comes after `eval()` in a loop that trains."""
    last = script.modules.modes.last_switch(call, network)
    return (
        last is not None
        and last.mode is Mode.EVAL
        and last.network is not None
        and script.tree.inside(last.call, loop.node)
        and script.evaluations.escapes.use(script.tree.statement(call), [call]) is GraphUse.DROPPED
    )


def _compares(script: Script, call: cst.Call) -> bool:
    """Return whether the line of a call only compares its output."""
    line = script.tree.statement(call)
    compared = any(True for _ in script.tree.within(line, cst.Comparison))
    compared = compared or any(method_of(e) == "eq" for e in script.tree.within(line, cst.Call))
    return compared and isinstance(line, cst.SimpleStatementLine)
