"""The position of gradient clipping among the backward passes and steps of a loop."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from torchlint.api import Act, Edits, Kind, Role, Script, Update, receiver_of
from torchlint_rules.shared.steporder import line_of, whole


class Clip(NamedTuple):
    """A clipping without effect: it runs before `backward()` or after the step."""

    call: cst.Call
    early: bool
    step: Update


def without_effect(script: Script, call: cst.Call) -> Clip | None:
    """Return a clipping whose gradients are cleared, or not yet computed, before the next step."""
    region = _region(script, call)
    if region is None:
        return None
    acts = [
        each
        for each in script.optimizers.updates.within(region)
        if not _elsewhere(script, each, call)
    ]
    own = next((at for at, each in enumerate(acts) if each.call is call), None)
    steps = [each for each in acts if each.act is Act.STEP]
    if own is None or not steps or acts[own].at is not call:
        return None
    stepped = {script.code(each.optimizer) if each.optimizer else "" for each in steps}
    if len(stepped) > 1 or "" in stepped or not any(each.act is Act.BACKWARD for each in acts):
        return None
    before = [each.act for each in (*acts[own + 1 :], *acts[:own])][::-1]
    behind = [each.act for each in (*acts[own + 1 :], *acts[:own])]
    if _comes_first(before, Act.CLEAR, Act.BACKWARD):
        return Clip(call, True, steps[-1])
    if _comes_first(behind, Act.CLEAR, Act.STEP):
        return Clip(call, False, steps[-1])
    return None


def _region(script: Script, call: cst.Call) -> cst.BaseSuite | None:
    """Return the repeated code around a call: its training loop, or its function."""
    for loop in script.loops.around(call):
        if loop.role is Role.TRAIN_BATCH:
            return loop.node.body
    function = script.scopes.function(call)
    return function.body if function is not None else None


def _elsewhere(script: Script, update: Update, call: cst.Call) -> bool:
    """Return whether an action may be skipped although a clipping runs, by a branch or loop."""
    around = {id(block) for block in script.scopes.blocks(call)}
    return id(script.scopes.blocks(update.at)[0]) not in around


def _comes_first(acts: list[Act], one: Act, other: Act) -> bool:
    """Return whether both actions occur and the first of them comes first."""
    if one not in acts or other not in acts:
        return False
    return acts.index(one) < acts.index(other)


def misplaced(script: Script, clip: Clip) -> Edits | None:
    """Move a clipping between the backward pass and the step, None if that may be wrong."""
    step = clip.step
    stepped = receiver_of(step.call)
    if step.at is not step.call or stepped is None or script.kind(stepped) is Kind.SCALER:
        return None
    place = line_of(script, step.call)
    block = script.tree.parent(place)
    if place is None or not isinstance(block, cst.IndentedBlock):
        return None
    line = whole(script, clip.call, block)
    return script.edits.moved(line, place, behind=False) if line is not None else None


def into_closing(script: Script, call: cst.Call, closing: cst.If) -> Edits | None:
    """Move a clipping into the `if` that steps, directly before the step."""
    line = line_of(script, call)
    steps = [
        each
        for each in script.optimizers.updates.within(closing.body)
        if each.act is Act.STEP and each.at is each.call
    ]
    if line is None or len(steps) != 1:
        return None
    stepped = receiver_of(steps[0].call)
    place = line_of(script, steps[0].call)
    if place is None or stepped is None:
        return None
    if script.kind(stepped) is Kind.SCALER or script.tree.parent(place) is not closing.body:
        return None
    return script.edits.moved(line, place, behind=False)
