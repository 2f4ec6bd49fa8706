"""Forward passes in a training loop that only compute metrics or display something."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from torchlint.api import Grad, GraphUse, Mode, Role, Script


def inspections(script: Script) -> Iterator[cst.Call]:
    """Yield, each once, the forward calls in training loops whose output is only inspected."""
    found = (_looks_now_and_then, _looks_in_eval)
    yield from {id(call): call for find in found for call in find(script)}.values()


def metrics(script: Script) -> Iterator[cst.Call]:
    """Yield the forward calls in training loops whose output is only compared with the labels."""
    for loop in script.loops.of(Role.TRAIN_BATCH):
        for call in script.tree.within(loop.node.body, cst.Call):
            if script.loops.module_call(call) is None or script.loops.batch_loop(call) is not loop:
                continue
            line = script.tree.statement(call)
            if (
                isinstance(line, cst.SimpleStatementLine)
                and script.evaluations.escapes.is_cut_off(call)
                and _compares(script, line)
                and script.values.gradients.grad(call) is Grad.ON
                and not script.evaluations.needs_gradients(line)
            ):
                yield call


def _looks_now_and_then(script: Script) -> Iterator[cst.Call]:
    """Yield the forward calls that a training loop makes only now and then, as a check."""
    for loop in script.loops.of(Role.TRAIN_BATCH):
        for branch in script.tree.within(loop.node.body, cst.If):
            if "%" not in script.code(branch.test):
                continue
            calls = [
                call
                for call in script.tree.within(branch.body, cst.Call)
                if script.loops.module_call(call) is not None
                and script.loops.batch_loop(call) is loop
                and not script.evaluations.escapes.is_cut_off(call)
            ]
            if not calls or any(
                script.values.gradients.grad(call) is not Grad.ON for call in calls
            ):
                continue
            if not script.evaluations.only_measures(
                branch.body
            ) or script.evaluations.needs_gradients(branch.body):
                continue
            if script.evaluations.escapes.use(branch.body, calls) is GraphUse.DROPPED:
                yield from calls


def _looks_in_eval(script: Script) -> Iterator[cst.Call]:
    """Yield the forward calls after `eval()` in a loop that trains on all data at once."""
    switched = {
        id(next(script.loops.around(it.node), None)) for it in script.calls.of_methods("eval")
    }
    for loop in script.loops.of(Role.TRAIN_BATCH, Role.EPOCH) if switched else ():
        if id(loop) not in switched:
            continue
        for call in script.tree.within(loop.node.body, cst.Call):
            if next(
                script.loops.around(call), None
            ) is not loop or script.evaluations.escapes.is_cut_off(call):
                continue
            network = script.loops.module_call(call)
            if network is None or script.values.gradients.grad(call) is not Grad.ON:
                continue
            last = script.modules.modes.last_switch(call, network)
            line = script.tree.statement(call)
            if last is None or last.mode is not Mode.EVAL or last.network is None:
                continue
            if not script.tree.inside(last.call, loop.node) or script.evaluations.needs_gradients(
                line
            ):
                continue
            if script.evaluations.escapes.use(line, [call]) is GraphUse.DROPPED:
                yield call


def _compares(script: Script, line: cst.SimpleStatementLine) -> bool:
    compared = any(True for _ in script.tree.within(line, cst.Comparison))
    return compared or any(
        script.calls.at(call).method == "eq" for call in script.tree.within(line, cst.Call)
    )
