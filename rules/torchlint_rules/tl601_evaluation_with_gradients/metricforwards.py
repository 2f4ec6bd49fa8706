"""Forward passes in a training loop that only compute metrics or display something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import Grad, GraphUse, Mode, Role, Script, method_of

_LOOK: Final = "a look at its output only"


def asides(script: Script) -> Iterator[tuple[cst.Call, str]]:
    """Yield the forward calls beside a training, each with what alone it is run for."""
    for each in _beside(script):
        call, network = each.call, script.loops.module_call(each.call)
        if network is None or script.values.gradients.grad(call) is not Grad.ON:
            continue
        if script.evaluations.needs_gradients(script.tree.statement(call)):
            continue
        if script.evaluations.escapes.is_cut_off(call):
            if each.in_pass and _compares(script, call):
                yield call, "a metric only"
        elif each.may_look and (
            _looks_in_eval(script, each.region, call, network)
            or (each.in_pass and _looks_now_and_then(script, each.region, call))
        ):
            yield call, _LOOK


class _Beside(NamedTuple):
    """A call in a loop that trains, or in a function that makes one step.

    `in_pass`: a training step is a pass of the region. `may_look`: the call is no part of a step.
    """

    call: cst.Call
    region: cst.For | cst.While | cst.FunctionDef
    in_pass: bool
    may_look: bool


def _beside(script: Script) -> Iterator[_Beside]:
    for loop in script.loops.of(Role.TRAIN_BATCH, Role.EPOCH):
        for call in filter(script.tree.is_own, script.tree.within(loop.node.body, cst.Call)):
            in_pass = loop is script.loops.batch_loop(call)
            yield _Beside(call, loop.node, in_pass, next(script.loops.around(call), None) is loop)
    for step in script.loops.steps.all:
        function = script.scopes.function(step.backward)
        if function is None or next(script.loops.around(step.backward), None) is not None:
            continue
        for call in filter(script.tree.is_own, script.functions.own(function, cst.Call)):
            if next(script.loops.around(call), None) is None:
                follows = script.tree.order(call) > script.tree.order(step.backward)
                yield _Beside(call, function, in_pass=True, may_look=follows)


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
