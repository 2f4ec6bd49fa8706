"""Functions that apply a network, and whose graph nothing goes back through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import libcst as cst

from torchlint.api import Grad, GraphUse, Mode, Role, Script

_MADE: Final = frozenset("torch.zeros torch.ones torch.rand torch.randn torch.empty".split())
_INFERS: Final = ("infer", "inference")
_PREDICTS: Final = frozenset("predict predicts infer inference".split())


def predictions(
    script: Script, covered: list[cst.CSTNode]
) -> Iterator[tuple[cst.FunctionDef, cst.Call]]:
    """Yield the functions that only use the output of a network, with the first call of it."""
    for function in script.tree.own(cst.FunctionDef):
        if function.name.value.startswith(("forward", "_")):
            continue
        calls = [
            call
            for call in script.functions.own(function.body, cst.Call)
            if script.loops.module_call(call) is not None
            and not isinstance(script.tree.parent(call), cst.Expr)
            and not any(script.tree.inside(call, node) for node in covered)
        ]
        callers = script.functions.callers(function)
        if callers and all(
            any(script.tree.inside(call, node) for node in covered) for call in callers
        ):
            continue  # the evaluation that runs it is reported
        if not calls or not _only_applies(script, function, calls):
            continue
        of_target = any(_is_target(script, call) for call in calls)  # TL411 reports it
        if not of_target and not _is_apart(script, function, calls):
            yield function, calls[0]


def _only_applies(script: Script, function: cst.FunctionDef, calls: list[cst.Call]) -> bool:
    if script.loops.owner(function) != "none":
        return False
    if any(script.values.gradients.grad(call) is not Grad.ON for call in calls):
        return False
    if not script.evaluations.only_measures(function) or script.evaluations.needs_gradients(
        function
    ):
        return False
    use = script.evaluations.escapes.use_within(function.body, calls)
    if use is GraphUse.ESCAPED:
        callers = script.functions.callers(function)
        uses = script.evaluations.escapes.use_of
        if _predicts_in_eval(script, function):
            return all(uses(call) is not GraphUse.TRAINED for call in callers)
        if not callers:
            return _is_inference(script, function)
        played = all(_is_played(script, call) for call in callers)
        return played and all(map(script.evaluations.escapes.is_dropped, calls))
    if use is not GraphUse.DROPPED or not _is_run(script, function):
        return False
    given = [script.values.value_of(arg.value).node for call in calls for arg in call.args]
    made_by = {script.name(each.func) for each in given if isinstance(each, cst.Call)}
    tried = not _MADE.isdisjoint(made_by)  # to see the size of the output
    return not tried and not any(map(script.evaluations.unread.is_only_sized, calls))


def _is_target(script: Script, call: cst.Call) -> bool:
    """Return whether a call is one of a network without an optimizer, for the loss of a step."""
    network, lineage = script.loops.module_call(call), script.modules.lineage
    if network is None or script.modules.unheld(network) is None:
        return False
    losses = (lineage.of_loss(each, recorded=False) for each in lineage.backward_passes())
    return any(call is each for loss in losses for each, _ in loss.calls)


def actions(script: Script, covered: list[cst.CSTNode]) -> Iterator[cst.Call]:
    """Yield the calls of networks whose output only chooses what an environment does next."""
    for call in filter(partial(_is_played, script), script.tree.own(cst.Call)):
        network = script.loops.module_call(call)
        if network is None or not script.modules.holders(network):
            continue
        if any(script.tree.inside(call, node) for node in covered):
            continue
        recorded = script.values.gradients.grad(call) is Grad.ON
        used = not isinstance(script.tree.parent(call), cst.Expr)
        if recorded and used and script.evaluations.escapes.is_dropped(call):
            yield call


def _is_played(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a loop around a node steps an environment."""
    stepped = script.loops.environments.are_stepped_in
    return any(stepped(loop.node.body) for loop in script.loops.around(node))


def is_called_with_graph(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether gradients are on in all calls of a method by its name."""
    named = script.whole.functions.named_like(function)
    return all(script.whole.values.gradients.grad(call) is Grad.ON for call in named)


def _is_run(script: Script, function: cst.FunctionDef, above: Sequence[cst.CSTNode] = ()) -> bool:
    """Return whether code in view runs a function, and none does so without gradients.

    What other methods of a class, or of its bases, run is run if code in view runs these.
    """
    if not is_called_with_graph(script, function):
        return False
    named = script.whole.functions.named_like(function)
    owner = script.scopes.class_of(function)
    lines = script.functions.lineage(owner) if owner is not None else ()
    outer = [script.scopes.function(call) for call in (*named, *script.functions.callers(function))]
    return any(
        each is None
        or script.scopes.class_of(each) not in lines
        or (each not in above and _is_run(script, each, (*above, function)))
        for each in outer
    )


def _is_apart(script: Script, function: cst.FunctionDef, calls: list[cst.Call]) -> bool:
    """Return whether a function is part of a test or of training, or runs but once."""
    loops = [script.loops.batch_loop(call) for call in calls]
    if any(loop is not None and loop.role is Role.TRAIN_BATCH for loop in loops):
        return True
    purpose = script.program.purpose
    if purpose.is_test(function):
        return True
    repeated = any(next(script.loops.around(call), None) is not None for call in calls)
    return not repeated and purpose.is_one_off(script.span(function))


def _is_inference(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a method of a network is, by its name, its inference."""
    owner = script.scopes.class_of(function)
    if owner is None or script.names.words(function.name.value)[0] not in _INFERS:
        return False
    calls = script.whole.functions.named_like(function)
    return script.functions.method(owner, "forward") is not None and all(
        script.whole.values.gradients.grad(call) is Grad.ON
        and script.whole.evaluations.escapes.use_of(call) is not GraphUse.TRAINED
        for call in calls
    )


def _predicts_in_eval(script: Script, function: cst.FunctionDef) -> bool:
    """Return whether a function, by its name, predicts and itself sets evaluation mode."""
    named = not _PREDICTS.isdisjoint(script.names.words(function.name.value))
    return named and any(each.mode is Mode.EVAL for each in script.modules.modes.switches(function))
