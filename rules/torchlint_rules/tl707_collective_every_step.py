"""TL707: collectives in every training step that training does not need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

import libcst as cst

from torchlint.api import (
    TENSORS,
    Finding,
    Frequency,
    How,
    Kind,
    Note,
    Rate,
    Role,
    Rule,
    Script,
    method_of,
    receiver_of,
    word_of,
)
from torchlint_rules.shared.grouping import joined
from torchlint_rules.shared.loglines import log_lines

_BARRIERS: Final = ("torch.distributed.barrier", "torch.distributed.monitored_barrier")
_COLLECTIVES: Final = tuple(
    f"torch.distributed.{name}"
    for name in (
        "all_reduce reduce all_gather all_gather_into_tensor all_gather_object gather "
        "gather_object broadcast"
    ).split()
)
_WAITING: Final = {"wait_for_everyone": ("accelerate",), "barrier": ("fabric",)}
"""The methods of frameworks that wait for all processes."""
_GATHERING: Final = {
    "gather": ("accelerate",),
    "gather_for_metrics": ("accelerate",),
    "reduce": ("accelerate",),
    "all_reduce": ("fabric",),
    "all_gather": ("fabric", "lightning"),
}
"""The methods of frameworks that return what all processes hold."""
_LOOPS: Final = (Role.TRAIN_BATCH, Role.EVAL_BATCH)
_HELPER: Final = re.compile(
    r"(?:all_)?reduce_(?:\w+_)?(?:tensor|tensors|dict|loss|losses|mean|metric|metrics|value|values)|"
    r"(?:all_reduce|allreduce|reduce|average|gather|sync|synchronize)_\w*(?:loss|losses|metric|metrics|mean)\w*"
)
_REDUCING: Final = re.compile(r"\w*(?:reduce|average|mean)\w*")
"""The name of a function in view that reduces, if it calls a collective."""
_MEASURED: Final = frozenset(
    "loss losses acc accuracy accuracies prec precision correct corrects hits metric metrics "
    "err error errors stats statistics score scores total totals".split()
)
_COPYING: Final = frozenset(
    "data detach clone item mean sum float double new repeat expand unsqueeze".split()
)
_GRADIENTS: Final = frozenset("grad grads gradient gradients param params parameters".split())
_COUNTED: Final = frozenset("mask masks tokens".split())
"""Words in the names of counts by which a loss is divided."""


class CollectiveEveryStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every collective in a training step whose result training does not use."""
        yield from self._barriers(script)
        yield from joined(script, self._averaged_logs(script), ("log", "logs"))
        yield from self._numbers(script)

    def _barriers(self, script: Script) -> Iterator[Finding]:
        """Flag the first barrier of a loop or of a step, with the others there."""
        found: dict[cst.CSTNode, list[cst.Call]] = {}
        direct = (site.node for site in script.calls.of(*_BARRIERS))
        for call in chain(direct, _of_framework(script, _WAITING, *_LOOPS)):
            repeated = _repeated(script, call)
            if repeated is not None:
                found.setdefault(repeated, []).append(call)
        for calls in found.values():
            first, *others = sorted(calls, key=script.tree.order)
            notes = tuple(Note(script.span(other), "here as well") for other in others)
            yield Finding(self.code, script.span(first), _of_barrier(script, first), notes=notes)

    def _numbers(self, script: Script) -> Iterator[Finding]:
        """Flag the first number that a loop or a step shares, with the others there."""
        found: dict[cst.CSTNode, list[tuple[cst.Call, cst.Name]]] = {}
        direct = (site.node for site in script.calls.of(*_COLLECTIVES))
        gathering = _of_framework(script, _GATHERING, Role.TRAIN_BATCH)
        for call in chain(direct, _helpers(script), gathering):
            repeated = _repeated(script, call) if call.args else None
            measured = _measured(script, call) if repeated is not None else None
            if (
                repeated is None
                or measured is None
                or (not _is_lost(script, call) and _is_logged(script, call, measured))
            ):
                continue
            if not _is_trained_with(script, call, measured):
                found.setdefault(repeated, []).append((call, measured))
        for calls in found.values():
            (call, measured), *others = sorted(calls, key=lambda each: script.tree.order(each[0]))
            notes = tuple(Note(script.span(other), "here as well") for other, _ in others)
            message = _of_number(script, call, measured)
            yield Finding(self.code, script.span(call), message, notes=notes)

    def _averaged_logs(self, script: Script) -> Iterator[tuple[cst.CSTNode, Finding]]:
        """Yield the values that Lightning averages over the processes, each with its step."""
        for site in script.calls.of_methods("log", "log_dict"):
            call = site.node
            given = site.given("sync_dist")
            function = script.scopes.function(call)
            if given is None or function is None or script.loops.owner(call) != "lightning":
                continue
            hot = script.loops.rate(function) is Rate.STEP
            if not hot or not script.values.value_of(given.value).equals(True):
                continue
            on_step = site.argument("on_step")
            if on_step.equals(False) or script.loops.frequency(call) is not Frequency.EVERY_PASS:
                continue
            message = (
                "`sync_dist=True` averages the value over all processes in every step, though "
                "only a log needs it: give `on_step=False, on_epoch=True` too, or leave it out"
            )
            yield function, Finding(self.code, script.span(given), message)


def _of_barrier(script: Script, call: cst.Call) -> str:
    loop = script.loops.batch_loop(call)
    trains = loop is None or loop.role is Role.TRAIN_BATCH
    why = "averaging the gradients keeps them in step" if trains else "no batch needs the others"
    return (
        f"`{script.code(call)}` makes all processes wait for the slowest in every batch, though "
        f"{why}: move it out of the {'step' if loop is None else 'loop'}"
    )


def _of_number(script: Script, call: cst.Call, measured: cst.Name) -> str:
    why = "nothing is trained with it"
    if _is_lost(script, call):
        why = "the result is lost, as it goes into a tensor that has no name"
    return (
        f"`{script.code(call.func)}` sends `{measured.value}` through all processes in every "
        f"batch, and {why}: add it up in each process and reduce it once per epoch, or where it "
        "is printed"
    )


def _is_lost(script: Script, call: cst.Call) -> bool:
    """Return whether a collective writes into the result of a computation, which nothing keeps."""
    return (
        script.name(call.func) in _COLLECTIVES
        and isinstance(call.args[0].value, cst.BinaryOperation)
        and isinstance(script.tree.parent(call), cst.Expr)
    )


def _is_logged(script: Script, call: cst.Call, measured: cst.Name) -> bool:
    """Return whether a line of each pass logs what a collective gives: that is the finding.

    What the pass only adds to a sum, which a line logs, could be added up in each process.
    """
    if not script.program.devices.can_use_accelerator:
        return False
    loop, line = script.loops.batch_loop(call), script.tree.statement(call)
    bound = {
        name.value
        for target in script.tree.within(line, cst.AssignTarget)
        for name in script.tree.within(target, cst.Name)
    }
    return any(
        name.value in (bound or {measured.value})
        for each in script.once(log_lines)
        if loop is None or each.loop.node is loop.node
        if not isinstance(script.tree.smallest_statement(each.shown.place), cst.AugAssign)
        for part in (each.shown.place, *(each.call.args if bound else ()))
        for name in script.tree.within(part, cst.Name)
    )


def _repeated(script: Script, call: cst.Call) -> cst.For | cst.While | cst.FunctionDef | None:
    """Return the batch loop that makes a call in each pass, or the function of one step."""
    loop = script.loops.batch_loop(call)
    if loop is None:
        return _step(script, call)
    hot = loop.role in _LOOPS and script.loops.frequency(call) is Frequency.EVERY_PASS
    return loop.node if hot else None


def _step(script: Script, call: cst.Call) -> cst.FunctionDef | None:
    """Return the function around a call that makes one training step, whatever runs it."""
    function = script.scopes.function(call)
    if function is None or not script.loops.each_step(call):
        return None
    calls = script.functions.own(function.body, cst.Call)
    return function if any(map(script.loops.is_step, calls)) else None


def _of_framework(
    script: Script, methods: Mapping[str, tuple[str, ...]], *roles: Role
) -> Iterator[cst.Call]:
    """Yield the calls of frameworks' methods for all processes, outside loops of other roles."""
    for site in script.calls.of_methods(*methods):
        loop = script.loops.batch_loop(site.node)
        if loop is None or loop.role in roles:
            if script.loops.owner(site.node) in methods[site.method]:
                yield site.node


def _helpers(script: Script) -> Iterator[cst.Call]:
    """Yield the calls of functions that reduce a number over processes."""
    for call in script.tree.all(cst.Call):
        word = word_of(call)
        known = _HELPER.fullmatch(word)
        if not (known or _REDUCING.fullmatch(word)) or script.name(call.func) in _COLLECTIVES:
            continue
        own = script.functions.callee(call)
        if own is None and (not known or word in _GATHERING):
            continue
        if _reduces(script, call, own):
            yield call


def _reduces(script: Script, call: cst.Call, own: cst.FunctionDef | None) -> bool:
    """Return whether a function with the name of a reduction is one, as far as visible."""
    if own is None:
        outside = script.functions.definition(call.func) is None
        return outside and not (script.name(call.func) or "").startswith(("torch.", "functools."))
    return any(
        script.name(inner.func) in _COLLECTIVES
        for body in script.functions.reached(own)
        for inner in script.tree.within(body, cst.Call)
    )


def _measured(script: Script, call: cst.Call) -> cst.Name | None:
    """Return the argument of a collective, by its name."""
    at: cst.BaseExpression = call.args[0].value
    while not isinstance(at, cst.Name):
        if isinstance(at, cst.Attribute) and at.attr.value in _COPYING:
            at = at.value
        elif isinstance(at, cst.Call) and method_of(at):
            at = at.func
        elif isinstance(at, cst.BinaryOperation):
            at = at.left
        else:
            return None
    spoken = _words(script, at)
    counted = not _COUNTED.isdisjoint(script.names.words(at.value))
    if spoken & _GRADIENTS or counted or not (spoken & _MEASURED or _is_loss(script, at)):
        return None
    return at


def _is_loss(script: Script, name: cst.Name) -> bool:
    """Return whether a value is a loss, or a copy of one."""
    at: cst.BaseExpression | None = name
    while at is not None and script.kind(at) is not Kind.LOSS:
        made = script.values.value_of(at).node if isinstance(at, cst.Name) else at
        at = receiver_of(made, *_COPYING)
    return at is not None


def _words(script: Script, name: cst.Name) -> set[str]:
    """Return the words of a name, of its value, and of what a loop takes it out of."""
    drawn = [
        script.code(bound.value)
        for bound in script.scopes.reaching(name)
        if bound.how is How.LOOP and bound.value is not None
    ]
    sources = [name.value, script.values.code_of(name), *drawn]
    return {word for source in sources for word in script.names.words(source)}


def _is_trained_with(script: Script, call: cst.Call, measured: cst.Name) -> bool:
    """Return whether the result of a collective becomes part of a loss."""
    holder = script.tree.parent(call)
    while isinstance(holder, (cst.Attribute, cst.Call, cst.BinaryOperation)):
        holder = script.tree.parent(holder)
    if isinstance(holder, cst.Assign):
        for each in holder.targets:
            for name in script.tree.within(each.target, cst.Name):
                if script.values.losses.feeds(name) or _goes_backward_below(script, call, name):
                    return True
        return False
    if script.name(call.func) not in _COLLECTIVES:
        return False
    in_place = call.args[0].value is measured  # not a copy of it
    return in_place and _goes_backward_below(script, call, measured)


def _goes_backward_below(script: Script, call: cst.Call, name: cst.Name) -> bool:
    """Return whether a name's value is part of a loss with a later backward call in the loop."""
    repeated = _repeated(script, call)
    below = [
        other
        for other in (script.tree.within(repeated.body, cst.Call) if repeated is not None else ())
        if script.loops.is_step(other) and script.tree.order(other) > script.tree.order(call)
    ]
    for other in below:
        if method_of(other) == "backward":
            if script.values.losses.feeds(name) or _gets_gradient(script, other):
                return True
        elif any(
            arg.keyword is None and script.code(arg.value) == name.value for arg in other.args
        ):
            return True
    return False


def _gets_gradient(script: Script, call: cst.Call) -> bool:
    """Return whether a backward pass starts from a gradient that the step computes itself."""
    tensor = receiver_of(call)
    return bool(call.args) and tensor is not None and script.kind(tensor) in TENSORS
