"""Accumulation under Accelerate, Fabric and Lightning: what TL504, TL506 and TL704 share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CallSite, How, Rate, Script, State

_ACCELERATORS: Final = ("accelerate.Accelerator", "accelerate.accelerator.Accelerator")
_TRAINERS: Final = ("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer")
_STEPS: Final = "gradient_accumulation_steps"
_CLIPS: Final = ("clip_grad_norm_", "clip_grad_value_")
_CONTEXTS: Final = {"accelerate": ("accumulate", "no_sync"), "fabric": ("no_backward_sync",)}


class Divided(NamedTuple):
    """A division of a loss that a framework divides again."""

    division: cst.CSTNode
    framework: str
    size: cst.BaseExpression
    only_here: bool
    """Whether nothing but the backward pass gets the quotient."""


# -- divided twice -------------------------------------------------------------


def divided_twice(script: Script) -> Iterator[Divided]:
    """Yield the losses that a script divides by what its framework divides them by."""
    for site in script.calls.of_methods("backward"):
        call = site.node
        if not call.args or script.loops.owner(call) != "accelerate":
            continue
        made = _accelerator(script, site.receiver)
        given = made.given(_STEPS) if made is not None else None
        if given is not None:
            yield from _divided(script, call.args[0].value, "Accelerate", given.value)
    sizes = [
        given.value
        for trainer in script.calls.of(*_TRAINERS)
        if (given := trainer.given("accumulate_grad_batches")) is not None
    ]
    for function in script.tree.all(cst.FunctionDef) if len(sizes) == 1 else ():
        if function.name.value == "training_step" and script.loops.rate(function) is Rate.STEP:
            for returned in script.functions.returns(function):
                yield from _divided(script, returned, "Lightning", sizes[0])


def _accelerator(script: Script, node: cst.BaseExpression) -> CallSite | None:
    """Return the call that made the `Accelerator` of an expression."""
    made = script.values.origins.of(node).values
    if len(made) != 1 or not isinstance(made[0], cst.Call):
        return None
    site = script.calls.at(made[0])
    return site if site.name in _ACCELERATORS else None


def _divided(
    script: Script, loss: cst.BaseExpression, framework: str, size: cst.BaseExpression
) -> Iterator[Divided]:
    """Yield the division of a loss by the size of a window."""
    if isinstance(loss, cst.BinaryOperation):
        if isinstance(loss.operator, cst.Divide) and _is_same(script, loss.right, size):
            yield Divided(loss, framework, loss.right, True)
        return
    made = script.scopes.only(loss)
    value = made.value
    if value is None:
        return
    if made.how is How.ASSIGN and isinstance(value, cst.BinaryOperation):
        divides = isinstance(value.operator, cst.Divide) and _is_same(script, value.right, size)
        if divides:
            yield Divided(value, framework, value.right, list(script.scopes.uses(made)) == [loss])
    elif made.how is How.AUGMENTED and isinstance(made.node, cst.AugAssign):
        if isinstance(made.node.operator, cst.DivideAssign) and _is_same(script, value, size):
            yield Divided(made.node, framework, value, False)


def _is_same(script: Script, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Return whether two expressions are certainly the same number, and not 1."""
    left, right = script.values.value_of(one), script.values.value_of(other)
    if left.state is State.KNOWN and left.is_literal and right.is_literal:
        return bool(left.literal == right.literal) and not left.equals(1)
    return isinstance(one, (cst.Name, cst.Attribute)) and (
        script.code(one) == script.code(other) or _handed(script, one) == {script.code(other)}
    )


def _handed(script: Script, node: cst.BaseExpression) -> set[str]:
    """Return the code of what calls pass for a parameter."""
    parameter = script.scopes.only(node).node
    given = script.functions.given(parameter) if isinstance(parameter, cst.Param) else ()
    return {*map(script.code, given)}


# -- clipped in parts ----------------------------------------------------------


def clips_of_parts(script: Script) -> Iterator[cst.Call]:
    """Yield the clippings under `accumulate(…)` that no test of `sync_gradients` guards."""
    for site in script.calls.of_methods(*_CLIPS):
        call = site.node
        made = _accelerator(script, site.receiver)
        size = made.argument(_STEPS) if made is not None else None
        if size is None or size.state is State.ABSENT or size.equals(1):
            continue
        word = script.code(site.receiver)
        inside = False
        for outer in script.tree.ancestors(call):
            if isinstance(outer, cst.If) and "sync_gradients" in script.code(outer.test):
                break
            if isinstance(outer, cst.With) and any(
                script.code(item.item).startswith(f"{word}.accumulate(") for item in outer.items
            ):
                inside = True
        else:
            if inside:
                yield call


# -- synchronized in each pass -------------------------------------------------


def accumulates_under(script: Script, framework: str) -> bool:
    """Return whether a file leaves it to a framework when gradients are averaged."""
    words = _CONTEXTS[framework]
    return next(script.calls.of_methods(*words), None) is not None
