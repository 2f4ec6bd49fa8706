"""Calls of schedulers: the arguments of their steps, and rates that are only shown."""

from __future__ import annotations

from typing import Final

import libcst as cst

from torchlint.api import Edits, Fix, Kind, Role, SchedulerStep, Script, word_of
from torchlint_rules.shared.steporder import early, is_now_and_then, put_behind

_OWN_STEP: Final = frozenset({
    "CosineAnnealingWarmRestarts", "ReduceLROnPlateau", "SequentialLR", "ChainedScheduler",
})  # fmt: skip
_SHOWING: Final = frozenset("print info debug warning log write append add_scalar".split())
_RECOUNTED: Final = (
    "the schedule then counts its own calls: rates can shift by an epoch, and a run that is "
    "resumed must load the state of the scheduler"
)


def misuse(script: Script, step: SchedulerStep) -> tuple[str, Fix | None] | None:
    """Judge the arguments of a step."""
    args, name = step.call.args, script.code(step.scheduler)
    if any(arg.star for arg in args) or not step.names:
        return None
    if step.names == {"ReduceLROnPlateau"}:
        if not args:
            return (
                f"`{name}` is a ReduceLROnPlateau: `step()` without a metric raises TypeError; "
                "pass it the validation loss",
                None,
            )
        return _counted_plateau(script, step, name)
    if not args or step.names & _OWN_STEP:
        return None
    given = args[0].value
    text = script.code(given)
    if script.kind(given) in (Kind.TENSOR, Kind.LOSS) or "loss" in script.names.words(text):
        made = " or ".join(sorted(step.names))
        return (
            f"`{name}` ({made}) takes no metric: `step({text})` sets its epoch to the value "
            "of the loss; only ReduceLROnPlateau wants one",
            None,
        )
    message = (
        f"`{name}.step({text})` is deprecated: a scheduler counts its own steps; call "
        f"`{name}.step()` once an epoch, after the optimizer"
    )
    return message, _recounted(script, step, given)


def _counted_plateau(
    script: Script, step: SchedulerStep, name: str
) -> tuple[str, Fix | None] | None:
    arg = script.calls.at(step.call).given("epoch", 1)
    if arg is None:
        return None
    edits = script.edits.without_argument(step.call, arg)
    return (
        f"the epoch that `{name}.step` is given is deprecated and only counted: leave it out",
        Fix.exact("Remove the epoch", edits),
    )


def _recounted(script: Script, step: SchedulerStep, given: cst.BaseExpression) -> Fix | None:
    """Return the fix that lets a scheduler count if the loop counts the same way."""
    loop = next(script.loops.around(step.call), None)
    if loop is None or not _counts_from_start(script, loop.node, given):
        return None
    if is_now_and_then(script, step.call, loop.node.body) or loop.role is not Role.EPOCH:
        return None
    if "#" in script.code(step.call):
        return None
    text = f"{script.code(step.scheduler)}.step()"
    found = early(script, step)
    edits: Edits | None = script.edits.replace(step.call, text)
    if found is not None:
        edits = put_behind(script, step, found, text)
    if edits is None:
        return None
    return Fix.unsafe("Let the scheduler count", edits, because=_RECOUNTED)


def _counts_from_start(
    script: Script, loop: cst.For | cst.While, given: cst.BaseExpression
) -> bool:
    """Return whether a value is the target of a loop over a range from 0 or 1."""
    if not isinstance(loop, cst.For) or not isinstance(given, cst.Name):
        return False
    if not isinstance(loop.target, cst.Name) or loop.target.value != given.value:
        return False
    for call in script.tree.within(loop.iter, cst.Call):
        if script.name(call.func) in ("builtins.range", "tqdm.trange"):
            first = call.args[0].value if len(call.args) > 1 else None
            return first is None or script.values.value_of(first).literal in (0, 1)
    return False


# -- rates that a script sets itself ---------------------------------------------------------


def sets_rates(script: Script, call: cst.Call) -> bool:
    """Return whether a function reads the rate because it sets the rate or the epoch by hand."""
    scheduler = script.calls.at(call).receiver
    if script.optimizers.schedulers.is_set_by_hand(scheduler):
        return True
    home = script.scopes.home(call)
    return any(_is_rate(script, each) for each in script.tree.within(home, cst.Subscript)) or any(
        step.call.args
        and script.scopes.home(step.call) is script.scopes.home(call)
        and script.code(step.scheduler) == script.code(scheduler)
        for step in script.optimizers.schedulers.steps
    )


def _is_rate(script: Script, node: cst.Subscript) -> bool:
    """Return whether a node is an assigned group rate (`group["lr"] = …`)."""
    assigned = isinstance(script.tree.parent(node), cst.AssignTarget)
    return assigned and script.values.key(node) == "lr"


# -- what is only shown ---------------------------------------------------------------------


def is_only_shown(script: Script, call: cst.Call) -> bool:
    """Return whether a value is only printed, logged or stored in a list."""
    node = _subscripted(script, call)
    holder = script.tree.parent(node)
    if isinstance(holder, cst.Assign) and len(holder.targets) == 1:
        target = holder.targets[0].target
        scope = script.scopes.scope(target)
        if not isinstance(target, cst.Name) or target.value in scope.outward:
            return False
        reads = [
            name
            for name in script.tree.spelled(target.value)
            if script.scopes.reads(name)
            and any(binding.node is holder for binding in script.scopes.reaching(name))
        ]
        return all(_is_shown(script, _subscripted(script, name)) for name in reads)
    return _is_shown(script, node)


def _subscripted(script: Script, node: cst.CSTNode) -> cst.CSTNode:
    """Return a value with its subscript (`get_lr()[0]`)."""
    outer = script.tree.parent(node)
    return outer if isinstance(outer, cst.Subscript) and outer.value is node else node


def _is_shown(script: Script, node: cst.CSTNode) -> bool:
    for at in script.tree.ancestors(node):
        if isinstance(at, cst.Call) and word_of(at) in _SHOWING:
            return True
        if isinstance(at, (cst.FormattedString, cst.FormattedStringExpression)):
            return True
        if isinstance(at, (cst.Comparison, cst.Assign, cst.AugAssign, cst.BaseStatement)):
            return False
    return False
