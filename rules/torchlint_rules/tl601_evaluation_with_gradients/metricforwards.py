"""Forward passes in a training loop that only compute metrics or display something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Grad, GraphUse, Mode, Role, Script, method_of

_LOOK: Final = "a look at its output only"


def asides(script: Script) -> Iterator[tuple[cst.Call, str]]:
    """Yield the forward calls beside a training, each with what alone it is run for."""
    for region, call, in_pass, may_look in _beside(script):
        network = script.loops.module_call(call)
        if network is None or script.values.gradients.grad(call) is not Grad.ON:
            continue
        if script.evaluations.needs_gradients(script.tree.statement(call)):
            continue
        if script.evaluations.escapes.is_cut_off(call):
            if in_pass and _compares(script, call):
                yield call, "a metric only"
        elif may_look and (
            _looks_in_eval(script, region, call, network)
            or (in_pass and _looks_now_and_then(script, region, call))
        ):
            yield call, _LOOK


def _beside(
    script: Script,
) -> Iterator[tuple[cst.For | cst.While | cst.FunctionDef, cst.Call, bool, bool]]:
    """Yield each call beside a step, with the loop that trains or the function of the step.

    Also whether one pass of that is a step, and whether the call is no part of it.
    """
    for loop in script.loops.of(Role.TRAIN_BATCH, Role.EPOCH):
        for call in filter(script.tree.is_own, script.tree.within(loop.node.body, cst.Call)):
            in_pass = loop is script.loops.batch_loop(call)
            yield loop.node, call, in_pass, next(script.loops.around(call), None) is loop
    for step in script.loops.steps.all:
        function = script.scopes.function(step.backward)
        if function is None or next(script.loops.around(step.backward), None) is not None:
            continue
        for call in filter(script.tree.is_own, script.functions.own(function, cst.Call)):
            if next(script.loops.around(call), None) is None:
                follows = script.tree.order(call) > script.tree.order(step.backward)
                yield function, call, True, follows


def _looks_now_and_then(script: Script, region: cst.CSTNode, call: cst.Call) -> bool:
    """Return whether a training makes a forward call only now and then, as a check."""
    for outer in script.tree.ancestors(call):
        if outer is region:
            return False
        if isinstance(outer, cst.If) and "%" in script.code(outer.test):
            part = outer.body
            return (
                script.tree.inside(call, part)
                and script.evaluations.only_measures(part)
                and not script.evaluations.needs_gradients(part)
                and script.evaluations.escapes.use(part, [call]) is GraphUse.DROPPED
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
