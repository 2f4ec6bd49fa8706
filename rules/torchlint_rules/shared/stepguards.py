"""Checks of tensors that stop the training or leave out a step: what TL211 leaves to TL212."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    CALLERS,
    Kind,
    Loop,
    Rate,
    Role,
    Script,
    last_line,
    lines_of,
    method_of,
    receiver_of,
    word_of,
)

_ASKS: Final = ("isfinite", "isnan", "isinf")
_MODULES: Final = ("math", "numpy", "torch")
_EXITS: Final = frozenset("sys.exit builtins.exit builtins.quit builtins.breakpoint".split())
_FLAGS: Final = ("None", "True", "False")
_SHOWS: Final = frozenset("print info debug warning warn error critical exception".split())


class StepGuard(NamedTuple):
    """A test that stops the training, or skips a step, if a tensor holds what it should not."""

    holder: cst.If | cst.Assert
    asked: cst.BaseExpression
    """The expression that waits."""
    tensor: cst.BaseExpression | None
    """What has to be finite, None for a check of anything else."""
    loop: Loop | None
    """The training loop around it; None in a function whose callers loop."""
    skips: bool
    """Whether it leaves out the step, and the training goes on."""


def step_guards(script: Script) -> Iterator[StepGuard]:
    """Yield the checks of each pass of a training that may stop it, or leave out the step."""
    holders: list[cst.If | cst.Assert] = [*script.tree.all(cst.If), *script.tree.all(cst.Assert)]
    for holder in holders:
        asked = _asked(script, holder.test) or _tested(script, holder)
        loop = script.loops.batch_loop(holder) if asked is not None else None
        if asked is None or _is_left_out(script, asked[0]) or not script.loops.each_step(holder):
            continue
        if not (_is_in_step(script, holder, CALLERS) if loop is None else _trains(script, loop)):
            continue
        skips = _skips(script, holder, loop)
        if skips is None or (skips and asked[1] is None) or _is_periodic(script, holder.test):
            continue
        if loop is None or not _is_scaled(script, loop, skips):
            yield StepGuard(holder, asked[0], asked[1], loop, skips)


def _is_periodic(script: Script, test: cst.BaseExpression) -> bool:
    """Return whether a test asks only every so many passes."""
    computed = script.tree.within(test, cst.BinaryOperation)
    return any(isinstance(each.operator, cst.Modulo) for each in computed)


def _trains(script: Script, loop: Loop) -> bool:
    return loop.role is Role.TRAIN_BATCH and not script.loops.is_round(loop)


def _is_in_step(script: Script, node: cst.CSTNode, depth: int) -> bool:
    """Return whether a function around a node, or one that calls it, is a step of training."""
    function = script.scopes.function(node)
    if function is None or not depth or script.optimizers.scaling.of("step"):
        return False
    if script.loops.rate(function) is Rate.STEP or script.loops.step_functions.makes(function):
        return True
    calls = script.functions.callers(function)
    for call in calls:
        loop = script.loops.batch_loop(call)
        if _is_in_step(script, call, depth - 1) if loop is None else _trains(script, loop):
            return True
    return not calls and script.loops.each_step(node)


def _asked(script: Script, test: cst.BaseExpression) -> tuple[cst.Call, cst.BaseExpression] | None:
    """Return the call of a test that reads a tensor on the device, and the tensor."""
    for call in script.tree.within(test, cst.Call):
        module, _, last = (script.name(call.func) or "").rpartition(".")
        given = receiver_of(call) if not module else None
        if given is not None:
            last = method_of(call)
        elif module in _MODULES and len(call.args) == 1:
            given = call.args[0].value
        if last not in _ASKS or given is None:
            continue
        if script.values.placement.may_be_on_device(given):
            return call, given
        read = next(script.readings.within(given), None) or script.readings.held_by(given)
        if read is not None:
            return read.node, read.tensor
        number = script.scopes.only(given).assigned
        tensor = receiver_of(number, "item") if isinstance(number, cst.Call) else None
        if tensor is not None and script.kind(tensor) is Kind.UNKNOWN:
            return cst.ensure_type(number, cst.Call), tensor
    return None


def _tested(script: Script, holder: cst.If | cst.Assert) -> tuple[cst.BaseExpression, None] | None:
    """Return the tensor, or the number read of one, that decides whether an error is raised."""
    if isinstance(holder, cst.If) and not _raises(holder):
        return None
    tested = next(script.readings.syncs.tested(holder.test), None)
    return None if tested is None else (tested, None)


def _is_left_out(script: Script, asked: cst.BaseExpression) -> bool:
    """Return whether a check stands behind an option that no code in view switches on."""
    sides = [each for each in script.tree.ancestors(asked) if type(each) is cst.BooleanOperation]
    return any(
        {*map(script.code, script.values.origins.of(each.left).values)} == {"False"}
        for each in sides
        if isinstance(each.operator, cst.And) and script.tree.inside(asked, each.right)
    )


def _raises(holder: cst.If) -> bool:
    """Return whether a branch ends with an error."""
    return _leaves(holder, cst.Raise)


def _leaves(holder: cst.If, *ways: type[cst.BaseSmallStatement]) -> bool:
    """Return whether a branch ends with a statement of some types."""
    return isinstance(last_line(holder.body), ways)


def _only_stops(script: Script, holder: cst.If) -> bool:
    """Return whether an `if` only ends the training or says something."""
    if holder.orelse is not None and not _raises(holder):
        return False
    leaves = _leaves(holder, cst.Raise, cst.Break, cst.Return)
    return all(
        _is_end(script, each) or (leaves and _computes(each)) for each in lines_of(holder.body)
    )


def _skips(script: Script, holder: cst.If | cst.Assert, loop: Loop | None) -> bool | None:
    """Return whether a check leaves out the step, False if it only stops, None if neither.

    `return` ends the one step that a function makes, which `loop` is None for.
    """
    if isinstance(holder, cst.Assert):
        return False
    if loop is None and _leaves(holder, cst.Return):
        return True if _ends_step(script, holder) else None
    return False if _only_stops(script, holder) else _decides_step(script, holder) or None


def _decides_step(script: Script, holder: cst.If) -> bool:
    """Return whether an `if` decides whether a pass goes backward or steps."""
    if _leaves(holder, cst.Continue):
        return True
    return any(
        script.loops.is_step(call)
        for branch in (holder.body, holder.orelse)
        if branch is not None
        for call in script.functions.own(branch, cst.Call)
    )


def _ends_step(script: Script, holder: cst.If) -> bool:
    """Return whether a `return` leaves a step, not a helper that gives another value."""
    last, function = last_line(holder.body), script.scopes.function(holder)
    value = last.value if isinstance(last, cst.Return) else None
    if value is None or (isinstance(value, cst.Name) and value.value in _FLAGS):
        return True
    own = script.functions.own(function.body, cst.Call) if function is not None else ()
    return any(map(script.loops.is_step, own))


def _computes(line: cst.CSTNode) -> bool:
    """Return whether a statement only gives a name to a message, or to the news of the end."""
    return isinstance(line, cst.Assign) and all(
        isinstance(each.target, cst.Name) for each in line.targets
    )


def _is_end(script: Script, line: cst.CSTNode) -> bool:
    """Return whether a statement ends the training, or shows something."""
    if isinstance(line, (cst.Raise, cst.Break, cst.Return, cst.Assert)):
        return True
    if not isinstance(line, cst.Expr) or not isinstance(line.value, cst.Call):
        return False
    return word_of(line.value) in _SHOWS or script.name(line.value.func) in _EXITS


def _is_scaled(script: Script, loop: Loop, skips: bool) -> bool:
    """Return whether a loop scales its gradients, whose scaler waits in each step anyway.

    A scaler skips what a check would skip, wherever it steps.
    """
    scaled = script.optimizers.scaling.of(*(("scale", "step") if skips else ("step",)))
    return any(script.tree.inside(each.node, loop.node) for each in scaled)
