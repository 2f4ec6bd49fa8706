"""The interval of a scheduler (batches or epochs) compared with the interval of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import CALLERS, Edits, Kind, Loop, Role, Schedule, SchedulerStep, Script, State
from torchlint_rules.shared.steporder import is_now_and_then, line_of, sure_steps

_TOTALS: Final = {
    "CosineAnnealingLR": "T_max",
    "PolynomialLR": "total_iters",
    "LinearLR": "total_iters",
    "LambdaLR": "num_training_steps",
}
"""The arguments that say after how many steps a schedule ends; the last is of Transformers."""
_EPOCHS: Final = frozenset("epoch epochs nepoch nepochs".split())
_BATCHES: Final = frozenset(
    "step steps iter iters iteration iterations batch batches update updates minibatch".split()
)
_SOON: Final = 100
_FEW: Final = 200
"""Milestones below this are reached before a loader has run a few times."""


class _Message(NamedTuple):
    text: str
    edits: Edits | None = None
    title: str = ""


def mismatch(script: Script, step: SchedulerStep) -> tuple[str, Edits | None, str] | None:
    """Return the message for a scheduler with a wrong step interval, the fix and its title."""
    if not step.names or not step.made:
        return None
    loop = _pass_of(script, step.call)
    found = None
    if loop is not None and loop.role is Role.EPOCH:
        found = _with_each_epoch(script, step, loop)
    elif loop is not None and loop.role is Role.TRAIN_BATCH and loop.loader is not None:
        found = _with_each_batch(script, step, loop)
    return (found.text, found.edits, found.title) if found is not None else None


def _pass_of(script: Script, node: cst.CSTNode, depth: int = CALLERS) -> Loop | None:
    """Return the loop with each pass of which a node runs, also through functions.

    It is the batch loop if the node's function has one around it.
    """
    function = script.scopes.function(node)
    loop = script.loops.batch_loop(node) or next(script.loops.around(node), None)
    region = loop.node.body if loop is not None else function
    if region is None or is_now_and_then(script, node, region):
        return None
    calls = script.functions.callers(function) if function is not None and depth else ()
    return loop or (_pass_of(script, calls[0], depth - 1) if len(calls) == 1 else None)


def _number(script: Script, made: Schedule, name: str) -> float | None:
    value = script.calls.at(made.call).argument(name)
    number = value.literal if value.state is State.KNOWN else None
    return float(number) if isinstance(number, (int, float)) else None


# -- stepped once an epoch ---------------------------------------------------------------


def _with_each_epoch(script: Script, step: SchedulerStep, around: Loop) -> _Message | None:
    """Judge a scheduler that counts batches."""
    counted = [_batches(script, each, around) for each in step.made]
    if not all(counted):
        return None
    name = script.code(step.scheduler)
    text = (
        f"`{name}` ({_listed(script, step)}) counts batches ({counted[0]}), but is stepped once "
        "an epoch: the rate hardly leaves its first value; step it after each step of the optimizer"
    )
    return _Message(text, _into_batches(script, step, around), "Step the scheduler with each batch")


def _listed(script: Script, step: SchedulerStep) -> str:
    names = {(script.name(each.call.func) or each.name).rpartition(".")[2] for each in step.made}
    return " or ".join(f"`{name}`" for name in sorted(names))


def _batches(script: Script, made: Schedule, around: Loop) -> str:
    """Return the argument by which a scheduler counts batches, empty if it may count epochs."""
    if made.name == "OneCycleLR":
        per_epoch = script.calls.at(made.call).expression("steps_per_epoch")
        total = script.calls.at(made.call).expression("total_steps")
        if per_epoch is not None and not script.values.value_of(per_epoch).equals(1):
            return f"`steps_per_epoch={script.code(per_epoch)}`"
        if total is None or _is_epochs(script, total, [around]):
            return ""
        if _speaks(script, total) == "batches":
            return f"`total_steps={script.code(total)}`"
        return ""
    if made.name != "CyclicLR":
        total = _total(script, made)
        counts = total is not None and _counts_loader(script, total)
        return (
            f"`{_TOTALS[made.name]}={script.code(total)}`" if total is not None and counts else ""
        )
    up = script.calls.at(made.call).argument("step_size_up")
    if up.state is State.ABSENT:
        return "`step_size_up=2000`"
    if up.node is not None and _speaks(script, up.node) == "batches":
        return f"`step_size_up={script.code(up.node)}`"
    return ""


def _into_batches(script: Script, step: SchedulerStep, around: Loop) -> Edits | None:
    """Move the step of a scheduler after the only step of its optimizer, in the same function."""
    line = line_of(script, step.call)
    updates = sure_steps(script, step, around.node.body) or ()
    if line is None or len(updates) != 1 or updates[0].at is not updates[0].call:
        return None
    place = line_of(script, updates[0].call)
    block = script.tree.parent(place)
    if place is None or not isinstance(block, cst.IndentedBlock):
        return None
    behind = block.body[block.body.index(place) + 1 :]
    if behind and ".update()" in script.code(behind[0]):
        place = line_of_update(script, behind[0]) or place
    return script.edits.moved(line, place, behind=True)


def line_of_update(script: Script, line: cst.BaseStatement) -> cst.SimpleStatementLine | None:
    """Return the line that consists of one call (`scaler.update()`)."""
    calls = [call for call in script.tree.within(line, cst.Call) if not call.args]
    return line_of(script, calls[0]) if calls else None


# -- stepped with each batch --------------------------------------------------------------


def _with_each_batch(script: Script, step: SchedulerStep, loop: Loop) -> _Message | None:
    """Judge a scheduler that counts epochs, or too few batches."""
    epochs = list(_epoch_loops(script, loop))
    if not epochs:
        return None
    reasons = [_too_soon(script, each, epochs) for each in step.made]
    if not all(reasons):
        return None
    name = script.code(step.scheduler)
    each_batch = f"`{name}` ({_listed(script, step)}) is stepped with each batch"
    if step.names == {"OneCycleLR"}:
        return _Message(f"{each_batch}, but {reasons[0]}: torch raises ValueError past its end")
    text = f"{each_batch}, but counts epochs: {reasons[0]}; step it once an epoch"
    return _Message(text, _behind_loop(script, step, loop), "Step the scheduler once an epoch")


def _epoch_loops(script: Script, loop: Loop) -> Iterator[Loop]:
    """Yield the loops that repeat a batch loop, including those of callers."""
    yield from script.loops.around(loop.node)
    function = script.scopes.function(loop.node)
    if function is not None:
        for call in script.functions.callers(function):
            yield from script.loops.around(call)


def _too_soon(script: Script, made: Schedule, epochs: list[Loop]) -> str:
    """Return why a schedule ends too soon if it counts batches, empty if it may not."""
    if made.name == "OneCycleLR":
        return _one_cycle(script, made, epochs)
    if made.name in ("StepLR", "ExponentialLR"):
        return _decay(script, made)
    if made.name == "MultiStepLR":
        return _milestones(script, made)
    total = _total(script, made)
    if total is not None and _is_epochs(script, total, epochs):
        return f"`{_TOTALS[made.name]}={script.code(total)}` is a number of epochs"
    return ""


def _total(script: Script, made: Schedule) -> cst.BaseExpression | None:
    """Return the number of steps after which a schedule ends, None if it has no end."""
    word = _TOTALS.get(made.name)
    kind = script.calls.at(made.call).argument("name").literal
    if word is None or (isinstance(kind, str) and kind.startswith("constant")):
        return None
    return script.calls.at(made.call).expression(word)


def _one_cycle(script: Script, made: Schedule, epochs: list[Loop]) -> str:
    total = script.calls.at(made.call).expression("total_steps")
    if total is not None and _is_epochs(script, total, epochs):
        return f"`total_steps={script.code(total)}` is a number of epochs"
    planned = _number(script, made, "epochs")
    bounds = [bound for loop in epochs if (bound := _bound(script, loop)) is not None]
    run = [script.values.value_of(bound).literal for bound in bounds]
    if planned is not None and any(type(each) is int and each > planned for each in run):
        return f"planned for {planned:g} epochs of {max(e for e in run if type(e) is int)}"
    return ""


def _decay(script: Script, made: Schedule) -> str:
    if made.name == "StepLR":
        size, gamma = _number(script, made, "step_size"), _gamma(script, made)
        span = script.calls.at(made.call).expression("step_size")
        if span is not None and _speaks(script, span) == "epochs":
            return f"`step_size={script.code(span)}` is a number of epochs"
    else:
        size, gamma = 1.0, _gamma(script, made)
    if not size or not gamma:
        return ""
    left = gamma ** (_SOON // size)
    return f"after {_SOON} batches the rate is {left:.1g} of what it was" if left < 0.1 else ""


def _gamma(script: Script, made: Schedule) -> float | None:
    if script.calls.at(made.call).argument("gamma").state is State.ABSENT:
        return 0.1
    return _number(script, made, "gamma")


def _milestones(script: Script, made: Schedule) -> str:
    given = script.calls.at(made.call).expression("milestones")
    if given is None:
        return ""
    if _speaks(script, given) == "epochs":
        return f"`milestones={script.code(given)}` are epochs"
    found = script.values.value_of(given).node
    marks = [
        script.values.value_of(element.value).literal
        for element in (found.elements if isinstance(found, (cst.List, cst.Tuple)) else ())
    ]
    if not marks or any(type(mark) is not int or mark > _FEW for mark in marks):
        return ""
    return f"its last drop comes with batch {max(marks)}"


def _behind_loop(script: Script, step: SchedulerStep, loop: Loop) -> Edits | None:
    line = line_of(script, step.call)
    if (
        line is None
        or script.tree.parent(line) is not loop.node.body
        or loop.node.orelse is not None
    ):
        return None
    if not script.edits.stands_alone(loop.node):
        return None
    return script.edits.moved(line, loop.node, behind=True)


# -- units -----------------------------------------------------------------------------------


def _bound(script: Script, loop: Loop) -> cst.BaseExpression | None:
    """Return the number of iterations of a loop over a range."""
    node = loop.node
    if not isinstance(node, cst.For):
        return None
    for call in script.tree.within(node.iter, cst.Call):
        if script.name(call.func) in ("builtins.range", "tqdm.trange"):
            plain = [arg.value for arg in call.args if arg.keyword is None]
            if len(plain) == 1:
                return plain[0]
    return None


def _is_epochs(script: Script, node: cst.BaseExpression, epochs: list[Loop]) -> bool:
    """Return whether an expression is the number of epochs."""
    bounds = [bound for loop in epochs if (bound := _bound(script, loop)) is not None]
    if any(script.values.code_of(bound) == script.values.code_of(node) for bound in bounds):
        return True
    return _speaks(script, node) == "epochs"


def _counts_loader(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether the length of a loader is a part of a number, or of its names' values."""
    named = (*script.tree.within(node, cst.Name), *script.tree.within(node, cst.Attribute))
    parts = [node, *(script.values.value_of(each).node or each for each in named)]
    return any(
        script.name(call.func) == "builtins.len" and script.kind(call.args[0].value) is Kind.LOADER
        for part in parts
        for call in script.tree.within(part, cst.Call)
        if call.args
    )


def _speaks(script: Script, node: cst.BaseExpression) -> str:
    """Return whether words of an expression, or of its names' values, count epochs or batches."""
    texts = [script.code(node), script.values.code_of(node)]
    texts += [script.values.code_of(name) for name in script.tree.within(node, cst.Name)]
    spoken = {word for text in texts for word in script.names.words(text)}
    if any("len(" in text for text in texts) or spoken & _BATCHES:
        return "batches"
    return "epochs" if spoken & _EPOCHS else ""
