"""TL304: gradients that are clipped before they are unscaled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Rule, ScalerCall, Script, method_of, receiver_of, word_of

_CLIPS: Final = re.compile(r"(?:\w*_)?clip_?grad\w*|clip_gradients?\w*", re.IGNORECASE)
_ON_GRADIENTS: Final = {"clamp_": "clips", "clip_": "clips", "norm": "measures", "mul_": "scales"}


class ClipBeforeUnscale(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the first use of gradients that are still scaled."""
        if script.optimizers.scaling.is_off:
            return
        for backward, scale in script.optimizers.scaling.backwards:
            call, word = _first_clip(script, backward)
            if (
                call is None
                or script.loops.owner(backward) != "none"
                or _may_be_unscaled(script, call, backward)
            ):
                continue
            scaler = script.code(scale.scaler)
            named = script.code(call.func)
            steps = _steps_behind(script, call)
            handed = steps[0].optimizer if _is_one(script, steps) else None
            optimizer = script.code(handed) if handed is not None else "optimizer"
            times = (
                ", 65536 times too large at first"
                if script.optimizers.scaling.starts_by_default
                else ""
            )
            test = _test_of_step(script, call, steps)
            cure = f"call `{scaler}.unscale_({optimizer})` before it"
            if test:
                cure = f"move it under `if {test}:`, behind `{scaler}.unscale_({optimizer})`"
            message = f"`{named}` {word} scaled gradients{times}: {cure}"
            yield Finding(self.code, script.span(call), message, _fix(script, call, scale, steps))


def _first_clip(script: Script, backward: cst.Call) -> tuple[cst.Call | None, str]:
    """Return the first call after a backward pass that uses gradients before the scaler's step."""
    order = script.tree.order
    home = script.scopes.home(backward)
    ends = [
        order(step.node)
        for step in script.optimizers.scaling.of("step")
        if order(step.node) > order(backward)
        and script.optimizers.scaling.together(step.node, backward)
    ]
    if not ends:
        return None, ""
    for call in script.functions.own(home, cst.Call):
        if order(backward) < order(call) < min(ends):
            word = _does(call)
            if word and script.optimizers.scaling.together(call, backward):
                return call, word
    return None, ""


def _does(call: cst.Call) -> str:
    """Return the effect of a call on gradients, empty for any other call."""
    if _CLIPS.fullmatch(word_of(call)):
        return "clips"
    inner = receiver_of(call, *_ON_GRADIENTS)
    while isinstance(inner, (cst.Attribute, cst.Call)):
        if isinstance(inner, cst.Attribute) and inner.attr.value == "grad":
            return _ON_GRADIENTS[method_of(call)]
        inner = inner.func if isinstance(inner, cst.Call) else inner.value
    return ""


def _may_be_unscaled(script: Script, clip: cst.Call, backward: cst.Call) -> bool:
    """Return whether code between a backward pass and a clipping unscales, or may do so."""
    order = script.tree.order
    home = script.scopes.home(backward)
    scaling = script.optimizers.scaling
    scalers = {script.code(each.scaler) for each in scaling.all}
    unscales = {id(each.node) for each in scaling.of("unscale_")}
    for call in script.functions.own(home, cst.Call):
        if order(call) > order(clip) or not scaling.together(call, clip):
            continue
        if id(call) in unscales:
            return True
        if order(call) < order(backward):
            continue
        callee = script.functions.callee(call)
        if callee is not None and any(
            script.tree.inside(each.node, body)
            for body in script.functions.reached(callee)
            for each in scaling.of("unscale_")
        ):
            return True
        if callee is None and any(script.code(arg.value) in scalers for arg in call.args):
            return True
    return False


def _steps_behind(script: Script, clip: cst.Call) -> list[ScalerCall]:
    """Return the steps after a clipping, up to the next update."""
    order = script.tree.order
    updates = [
        order(each.node)
        for each in script.optimizers.scaling.of("update")
        if order(each.node) > order(clip)
    ]
    end = min(updates, default=script.tree.end(script.tree.modules[-1]))
    return [
        each
        for each in script.optimizers.scaling.of("step")
        if order(clip) < order(each.node) < end
        and script.optimizers.scaling.together(each.node, clip)
    ]


def _test_of_step(script: Script, clip: cst.Call, steps: list[ScalerCall]) -> str:
    """Return what is asked before the step of a clip in each micro-batch, empty if it is none.

    Gradients may be unscaled once before each step.
    """
    for window in script.loops.gradient_accumulations.all():
        closing = window.closing
        if closing is None or script.tree.inside(clip, closing):
            continue
        inside = script.tree.inside(clip, window.loop.node)
        if inside and any(script.tree.inside(step.node, closing) for step in steps):
            return script.code(closing.test)
    return ""


def _is_one(script: Script, steps: list[ScalerCall]) -> bool:
    """Return whether there are steps and all are of one optimizer."""
    return bool(steps) and all(
        script.optimizers.scaling.same(step.optimizer, steps[0].optimizer) for step in steps
    )


def _fix(script: Script, clip: cst.Call, scale: ScalerCall, steps: list[ScalerCall]) -> Fix | None:
    """Unscale before a clipping in the code that steps its optimizer."""
    line = script.tree.statement(clip)
    optimizer = steps[0].optimizer if _is_one(script, steps) else None
    if optimizer is None or _does(clip) != "clips" or not isinstance(line, cst.SimpleStatementLine):
        return None
    if not script.edits.stands_alone(line):
        return None
    around = script.optimizers.scaling.guards(clip)
    if any(
        guard not in around
        for step in steps
        for guard in script.optimizers.scaling.guards(step.node)
    ):
        return None
    if next(script.loops.around(clip), None) is not next(script.loops.around(steps[0].node), None):
        return None
    text = f"{script.code(scale.scaler)}.unscale_({script.code(optimizer)})"
    return Fix.unsafe(
        "Unscale the gradients first",
        script.edits.before(line, text),
        because="repairs the clipping, so the run changes",
    )
