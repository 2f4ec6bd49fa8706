"""TL320: training under float16 autocast without a gradient scaler."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Note, Rule, Script, Step, receiver_of

_SCALES: Final = re.compile(
    r"scaler|loss_?scal|scale_?loss|scaled_loss|grad_?scal|initialize|deepspeed|FP16_Optimizer",
    re.IGNORECASE,
)
_BECAUSE: Final = "bfloat16 rounds to 8 bits, and GPUs before Ampere do not have it"


class HalfWithoutScaler(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every float16 autocast of a loss that is sent backward unscaled."""
        for step in script.loops.steps.all:
            autocast = _half(script, step)
            if autocast is None or not _is_unscaled(script, step):
                continue
            func = cst.ensure_type(step.backward.func, cst.Attribute)
            message = (
                f"`{script.tree.brief(func.value)}` is float16 and calls `backward()` without a "
                "`GradScaler`, so small gradients underflow to 0: use `dtype=torch.bfloat16`, or "
                "scale the loss"
            )
            notes = (Note(script.span(step.backward), "sent backward here"),)
            fix = _fix(script, autocast)
            yield Finding(self.code, script.span(autocast), message, fix, notes)


def _half(script: Script, step: Step) -> cst.Call | None:
    """Return the autocast of a step that is certainly on and in float16."""
    for forward in _forwards(script, step):
        for autocast in script.values.autocasting.around(forward).calls:
            if script.values.autocasting.is_half(autocast) and not script.values.autocasting.is_off(
                autocast
            ):
                return autocast
    return None


def _forwards(script: Script, step: Step) -> Iterator[cst.Call]:
    """Yield the calls that compute the loss of a step, those inside its functions too."""
    for forward in step.forwards:
        yield forward
        callee = script.functions.callee(forward)
        for call in script.functions.own(callee.body, cst.Call) if callee is not None else ():
            if script.loops.module_call(call) is not None:
                yield call


def _is_unscaled(script: Script, step: Step) -> bool:
    """Return whether nothing around a backward pass may scale its loss."""
    sent = receiver_of(step.backward, "backward")
    if sent is None:
        return False
    if isinstance(sent, cst.BinaryOperation) and isinstance(sent.operator, cst.Multiply):
        return False
    if script.loops.owner(step.backward) != "none" or not script.loops.steps.updates(step):
        return False
    owner = script.scopes.class_of(step.backward)
    spoken = [] if owner is None else [*script.tree.within(owner, cst.Attribute)]
    names: list[cst.Name] = []
    for body in script.functions.run_with(step.backward):
        names += script.functions.own(body, cst.Name)
        spoken += script.functions.own(body, cst.Attribute)
    words = {name.value for name in names} | {each.attr.value for each in spoken}
    return not any(map(_SCALES.search, words))


def _fix(script: Script, autocast: cst.Call) -> Fix | None:
    """Return the edit that computes in bfloat16."""
    call = script.calls.at(autocast)
    if call.has_splat or not script.tree.is_own(autocast):
        return None
    given = call.given("dtype", 1)
    if given is not None and isinstance(given.value, cst.Attribute):
        spelled = f"{script.code(given.value.value)}.bfloat16"
        edits = script.edits.replace(given.value, spelled)
    elif given is None:
        written = script.edits.importing("torch", at=autocast)
        if written is None:
            return None
        torch, imported = written
        edits = (*imported, *script.edits.with_keyword(autocast, "dtype", f"{torch}.bfloat16"))
    else:
        return None
    return Fix.unsafe("Compute in bfloat16", edits, because=_BECAUSE)
