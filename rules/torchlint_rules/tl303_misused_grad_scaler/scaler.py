"""Misuses of a gradient scaler: each is a call, a message and an optional fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Fix,
    Impact,
    Kind,
    Loop,
    Role,
    ScalerCall,
    Script,
    method_of,
    receiver_of,
    word_of,
)
from torchlint_rules.shared.cuda import trained_in
from torchlint_rules.shared.rebuilding import hoisted, rebuilt, training_loops

_KEPT: Final = "the scale is kept from pass to pass, so other steps are skipped"


class Misuse(NamedTuple):
    """One place where a scaler is used incorrectly."""

    node: cst.CSTNode
    message: str
    fix: Fix | None = None
    impact: Impact | None = None
    beside: tuple[cst.CSTNode, ...] = ()


def misuses(script: Script) -> Iterator[Misuse]:
    """Yield the misuses of the scalers of a file."""
    for find in (
        _unscaled_backward,
        _unscaled_step,
        _never_updated,
        _never_stepped,
        _unscaled_twice,
        _half_network,
        _made_in_loop,
        _with_bfloat16,
        _every_micro_batch,
        _with_closure,
    ):
        yield from find(script)


def _own(script: Script, node: cst.CSTNode) -> Iterator[cst.Call]:
    """Yield the calls in the function around a node."""
    return script.functions.own(script.scopes.home(node), cst.Call)


def _steps_optimizer(script: Script, call: cst.Call) -> bool:
    owner = receiver_of(call, "step")
    return owner is not None and script.kind(owner) is Kind.OPTIMIZER


# -- calls that are missing --------------------------------------------------


def _unscaled_backward(script: Script) -> Iterator[Misuse]:
    scaling = script.optimizers.scaling
    steps = scaling.of("step")
    if not steps or scaling.of("scale") or scaling.escapes:
        return
    for step in steps:
        for call in _own(script, step.node):
            sent = receiver_of(call, "backward")
            if sent is None or script.tree.order(call) > script.tree.order(step.node):
                continue
            if not script.loops.is_step(call) or not scaling.together(call, step.node):
                continue
            scaler, loss = script.code(step.scaler), script.code(sent)
            text = f"{scaler}.scale({loss})"
            message = (
                f"`{loss}` is not scaled before `backward()`, so `{scaler}.step` fails: "
                f"call `{text}.backward()`"
            )
            yield Misuse(call, message)


def _unscaled_step(script: Script) -> Iterator[Misuse]:
    scaling = script.optimizers.scaling
    if scaling.escapes:
        return
    by_scaler = scaling.of("step", "unscale_")
    for backward, scale in scaling.backwards:
        for call in _own(script, backward):
            optimizer = receiver_of(call)
            if optimizer is None or not _steps_optimizer(script, call):
                continue
            if any(scaling.same(each.optimizer, optimizer) for each in by_scaler):
                continue
            if not all(scaling.same(each.optimizer, each.optimizer) for each in by_scaler):
                continue
            if not _in_step_of(script, call, backward):
                continue
            scaler, named = script.code(scale.scaler), script.code(optimizer)
            times = ", 65536 times too large at first" if scaling.starts_by_default else ""
            message = f"`{named}` steps with scaled gradients{times}: call `{scaler}.step({named})`"
            yield Misuse(call, message)


def _in_step_of(script: Script, step: cst.Call, backward: cst.Call) -> bool:
    """Return whether an optimizer steps after a backward pass, ignoring branches around them."""
    scaling = script.optimizers.scaling
    if script.tree.order(step) < script.tree.order(backward):
        return False
    if not scaling.together(step, backward):
        return False
    around = scaling.guards(step)
    if any(guard not in around for guard in scaling.guards(backward)):
        return False
    boundary = scaling.boundary(step)
    mine = [guard for guard in around if guard not in scaling.guards(backward)]
    return all(guard is boundary for guard in mine)


def _never_updated(script: Script) -> Iterator[Misuse]:
    scaling = script.optimizers.scaling
    steps = scaling.of("step")
    if not steps or scaling.of("update") or scaling.escapes or not scaling.backwards:
        return
    last = steps[-1]
    if not any(loop.role is not Role.OTHER for loop in script.loops.around(last.node)):
        return
    scaler = script.code(last.scaler)
    message = (
        f"`{scaler}.step` fails the second time, because nothing calls `{scaler}.update()`: "
        "call it after the last step"
    )
    yield Misuse(last.node, message)


def _never_stepped(script: Script) -> Iterator[Misuse]:
    scaling = script.optimizers.scaling
    updates = scaling.of("update")
    if not updates or scaling.of("step", "unscale_") or scaling.escapes or not scaling.backwards:
        return
    if any(_steps_optimizer(script, site.node) for site in script.calls.of_methods("step")):
        return
    for update in updates:
        scaler = script.code(update.scaler)
        message = f"`{scaler}.update()` fails, because no `{scaler}.step(…)` comes before it"
        yield Misuse(update.node, message)


# -- calls that are wrong ----------------------------------------------------


def _unscaled_twice(script: Script) -> Iterator[Misuse]:
    scaling = script.optimizers.scaling
    unscales = scaling.of("unscale_")
    for index, second in enumerate(unscales):
        for first in unscales[:index]:
            if not scaling.same(first.optimizer, second.optimizer):
                continue
            if _again(script, first, second):
                yield Misuse(second.node, _twice(script, second))
                break
        else:
            if _unscales_micro_batches(script, second):
                message = (
                    f"{_twice(script, second)}: it belongs in the `if` around "
                    f"`{script.code(second.scaler)}.step`"
                )
                yield Misuse(second.node, message)


def _twice(script: Script, call: ScalerCall) -> str:
    named = script.code(call.optimizer) if call.optimizer is not None else ""
    return f"`{named}` is unscaled a second time before the next update, which fails"


def _again(script: Script, first: ScalerCall, second: ScalerCall) -> bool:
    """Return whether two calls certainly run one after the other without an update in between."""
    order = script.tree.order
    if script.scopes.home(first.node) is not script.scopes.home(second.node):
        return False
    blocks = script.scopes.blocks(second.node)
    if not script.scopes.blocks(first.node) or script.scopes.blocks(first.node)[0] not in blocks:
        return False
    return not any(
        order(first.node) < order(update.node) < order(second.node)
        for update in script.optimizers.scaling.of("update", "step")
    )


def _unscales_micro_batches(script: Script, unscale: ScalerCall) -> bool:
    """Return whether gradients are unscaled in each iteration but stepped in some."""
    scaling = script.optimizers.scaling
    steps = [each for each in scaling.of("step") if scaling.same(each.optimizer, unscale.optimizer)]
    loop = next(script.loops.around(unscale.node), None)
    updates = [
        each.node
        for each in scaling.of("update")
        if loop is not None and script.tree.inside(each.node, loop.node)
    ]
    in_all = any(scaling.boundary(each) is None for each in updates)
    return not in_all and _runs_more_often(script, unscale.node, [each.node for each in steps])


def _runs_more_often(script: Script, call: cst.Call, others: Sequence[cst.Call]) -> bool:
    """Return whether a call runs in each iteration of its loop, but others there only in some."""
    boundary, loop = script.optimizers.scaling.boundary, next(script.loops.around(call), None)
    mine = [each for each in others if loop is not None and script.tree.inside(each, loop.node)]
    return boundary(call) is None and bool(mine) and all(map(boundary, mine))


def _every_micro_batch(script: Script) -> Iterator[Misuse]:
    """Flag a call in every iteration of an accumulation that belongs at the boundary."""
    scaling = script.optimizers.scaling
    steps = scaling.of("step")
    for update in scaling.of("update"):
        if _runs_more_often(script, update.node, [step.node for step in steps]):
            scaler = script.code(update.scaler)
            message = (
                f"`{scaler}.update()` runs in every pass but `{scaler}.step` only in some, so it "
                "fails in the others: put it behind the step, into the `if`"
            )
            yield Misuse(update.node, message)
    for step in steps:
        loop = next(script.loops.around(step.node), None)
        if loop is None or step.optimizer is None:
            continue
        clears = _clears(script, loop, step.optimizer)
        if _runs_more_often(script, step.node, clears):
            message = (
                f"`{script.code(step.node)}` steps in every pass though `{script.code(clears[0])}` "
                "lets the gradients of several add up: step in the same passes"
            )
            yield Misuse(step.node, message)


def _clears(script: Script, loop: Loop, optimizer: cst.BaseExpression) -> list[cst.Call]:
    """Return the calls in a loop that clear an optimizer's gradients, all of them or none."""
    found = [
        call
        for call in script.tree.within(loop.node.body, cst.Call)
        if method_of(call) == "zero_grad"
    ]
    own = [
        call
        for call in found
        if (owner := receiver_of(call)) is not None
        and script.optimizers.scaling.same(owner, optimizer)
    ]
    return own if len(own) == len(found) else []


def _half_network(script: Script) -> Iterator[Misuse]:
    if not script.optimizers.scaling.makers or not script.optimizers.scaling.backwards:
        return
    for site in script.calls.of_methods("half"):
        holder = script.tree.parent(site.node)
        alone = isinstance(holder, cst.Expr) or (
            isinstance(holder, cst.Assign) and len(holder.targets) == 1
        )
        if alone and script.modules.holders(site.receiver) and _is_trained(script, site.receiver):
            scaler = "the scaler"
            for step in script.optimizers.scaling.of("step"):
                scaler = f"`{script.code(step.scaler)}`"
            message = (
                f"`{script.code(site.node)}` makes gradients float16, which {scaler} refuses to "
                "unscale: keep the network float32 and run it under autocast"
            )
            yield Misuse(site.node, message)


def _is_trained(script: Script, network: cst.BaseExpression) -> bool:
    """Return whether a step in view goes back through a network, not through one made of it."""
    made = script.modules.creators(network) - {None}
    return any(
        made & script.modules.creators(each)
        for step in script.loops.steps.all
        for each in trained_in(script, step)
    )


def _with_closure(script: Script) -> Iterator[Misuse]:
    for step in script.optimizers.scaling.of("step"):
        closure = any(
            isinstance(arg.value, cst.Lambda) or script.functions.definition(arg.value) is not None
            for arg in step.node.args[1:]
        )
        made = script.values.value_of(step.optimizer).node if step.optimizer is not None else None
        lbfgs = isinstance(made, cst.Call) and script.name(made.func) == "torch.optim.LBFGS"
        if (closure or lbfgs) and not _may_take_closures(script, step.scaler):
            named = script.code(step.optimizer) if step.optimizer is not None else "the optimizer"
            message = (
                f"`{named}` steps by a closure, which `{script.code(step.scaler)}` does not "
                "support: train in float32 or bfloat16, without a scaler"
            )
            yield Misuse(step.node, message)


def _may_take_closures(script: Script, scaler: cst.BaseExpression) -> bool:
    """Return whether code assigns a scaler of a class of its own."""
    path = script.code(scaler)
    return any(
        word_of(call).endswith("GradScaler") and call not in script.optimizers.scaling.makers
        for line in script.tree.all(cst.Assign)
        if path in [script.code(each.target) for each in line.targets]
        for call in script.tree.within(line.value, cst.Call)
    )


# -- scalers that are not needed, or not kept ---------------------------------


def _with_bfloat16(script: Script) -> Iterator[Misuse]:
    """Flag a scaler if autocast uses bfloat16 everywhere."""
    if not script.optimizers.scaling.makers:
        return
    casts = [
        call for call in script.tree.all(cst.Call) if script.values.precision.autocast(call) is call
    ]
    if not casts or any(script.values.precision.dtype(call) != "torch.bfloat16" for call in casts):
        return
    makers = [
        call
        for call in script.optimizers.scaling.makers
        if script.optimizers.scaling.is_always_on(call)
        or all(script.optimizers.scaling.is_on_with(call, cast) for cast in casts)
    ]
    for call in makers:
        message = (
            "bfloat16 has the range of float32 and needs no scaler, and this one makes every step "
            "wait for the GPU: remove it, or pass `enabled=False`"
        )
        yield Misuse(call, message)


def _made_in_loop(script: Script) -> Iterator[Misuse]:
    for call in script.optimizers.scaling.makers:
        found = rebuilt(script, call, script.once(training_loops))
        run = () if found is None else script.functions.run_in(found.loop.node.body)
        if found is None or any(script.kind(each) is Kind.OPTIMIZER for each in run):
            continue
        function = script.scopes.function(call)
        if found.runs and function is not None:
            message = (
                f"each call of `{function.name.value}` makes a new scaler, which forgets the scale "
                "that the last one had found: make it once and pass it in"
            )
            yield Misuse(call, message)
            continue
        named = _name(script, call)
        edits = hoisted(script, found) if named else None
        title = f"Make {named} before the loop"
        message = (
            f"{named or 'a scaler'} is rebuilt in each pass of a loop and loses the scale that it "
            "had found: make it once, before the loop"
        )
        yield Misuse(call, message, Fix.unsafe(title, edits, because=_KEPT) if edits else None)


def _name(script: Script, call: cst.Call) -> str:
    """Return the name that a scaler is given, empty if it gets none."""
    assign = script.tree.parent(call)
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return ""
    return f"`{script.code(assign.targets[0].target)}`"
