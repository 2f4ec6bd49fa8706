"""Reads in the methods that a framework calls for each batch: a part of TL201 and TL202."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Form, Frequency, Kind, Rate, Reading, Script, receiver_of
from torchlint_rules.shared.engineoutputs import reads_outputs

_LOG: Final = "log"
_DRAWS: Final = "prog_bar"
_TENSORS: Final = (Kind.TENSOR, Kind.UNKNOWN)
"""Unknown is what a detached value is, where nothing shows what computed it."""


def hook_reads(script: Script, code: str, rate: Rate) -> Iterator[Finding]:
    """Yield a finding for each read that a method only logs, shows or keeps for later."""
    if not script.program.devices.can_use_accelerator:
        return
    for function in script.tree.all(cst.FunctionDef):
        if script.loops.rate(function) is not rate:
            continue
        kept = {
            id(each.reading.node)
            for each in script.readings.waits.of_step(function)
            if each.target is not None
            and (
                _is_loss(script, each.reading.tensor)
                or _is_of_self(script, each.target)
                or (each.is_returned and bool(script.functions.callers(function)))
            )
        }
        for read in script.readings.within(function.body):
            if not _is_idle(script, function, read, id(read.node) in kept):
                continue
            name = function.name.value
            call = _logged_by(script, read)
            fix = _passed_on(script, call, read) if call is not None else None
            cure = (
                f"pass `{script.tree.brief(read.tensor)}` itself, Lightning reads it when it "
                "shows it"
                if call is not None
                else f"keep `{script.tree.brief(read.tensor)}.detach()` and read it every so "
                "many steps"
            )
            message = (
                f"`{script.tree.brief(read.node)}` in `{name}` waits for the device in every "
                f"batch: {cure}"
            )
            yield Finding(code, script.span(read.node), message, fix)
        for call, shown in _printed(script, function):
            message = (
                f"`print` in `{function.name.value}` waits for `{script.tree.brief(shown)}` in "
                "every batch: print it every so many steps"
            )
            yield Finding(code, script.span(call), message)


def _printed(
    script: Script, function: cst.FunctionDef
) -> Iterator[tuple[cst.Call, cst.BaseExpression]]:
    """Yield the calls of `print` in a method that show a loss as it is, each with the loss."""
    for call in script.tree.within(function.body, cst.Call):
        if script.name(call.func) != "builtins.print" or not _runs_each_time(
            script, function, call
        ):
            continue
        inner = script.tree.within(call, cst.FormattedStringExpression)
        places = [*(arg.value for arg in call.args), *(each.expression for each in inner)]
        shown = next((each for each in places if script.kind(each) is Kind.LOSS), None)
        if shown is not None and not script.values.placement.on_host(shown):
            yield call, shown


def _runs_each_time(script: Script, function: cst.FunctionDef, node: cst.CSTNode) -> bool:
    """Return whether each call of a method reaches a node of its own."""
    own = script.scopes.function(node) is function
    return own and script.loops.frequency(node) is Frequency.EVERY_PASS


def _is_idle(script: Script, function: cst.FunctionDef, read: Reading, is_kept: bool) -> bool:
    """Return whether a read runs in every batch and nothing else there needs its value."""
    if not _runs_each_time(script, function, read.node) or read.form is not Form.NUMBER:
        return False
    if script.values.placement.on_host(read.tensor):
        return False
    if is_kept or script.readings.is_logged(read.node):
        return _is_loss(script, read.tensor) or script.kind(read.tensor) in _TENSORS
    return _is_loss(script, read.tensor) and _is_output(script, read)


def _is_of_self(script: Script, target: cst.BaseExpression) -> bool:
    """Return whether what a value is added to outlives the call of a method."""
    return script.code(target).startswith("self.")


def _is_loss(script: Script, tensor: cst.BaseExpression) -> bool:
    """Return whether a tensor is a loss: of a criterion, or of what a network returns."""
    if script.kind(tensor) is Kind.LOSS:
        return True
    found = (
        [each.value for each in script.scopes.reaching(tensor)]
        if isinstance(tensor, cst.Name)
        else [tensor]
    )
    return bool(found) and all(
        isinstance(value, cst.Attribute) and value.attr.value == "loss" for value in found
    )


def _is_output(script: Script, read: Reading) -> bool:
    """Return whether an engine of Ignite gets a number that no handler reads each time."""
    if script.loops.owner(read.node) != "ignite" or reads_outputs(script):
        return False
    output = script.tree.parent(read.node)
    while isinstance(output, (cst.DictElement, cst.Dict, cst.Element, cst.Tuple, cst.List)):
        output = script.tree.parent(output)
    return isinstance(output, cst.Return) and len(list(script.readings.within(output))) == 1


def _logged_by(script: Script, read: Reading) -> cst.Call | None:
    """Return the call of Lightning's `self.log` whose value is what is read."""
    arg = script.tree.parent(read.node)
    call = script.tree.taker(read.node)
    if not isinstance(call, cst.Call) or script.loops.owner(call) != "lightning":
        return None
    owner = receiver_of(call, _LOG)
    logs = isinstance(owner, cst.Name) and owner.value == "self"
    given = script.calls.at(call).given("value", 1) if logs else None
    return call if given is arg else None


def _passed_on(script: Script, call: cst.Call, read: Reading) -> Fix | None:
    """Return the fix that logs the tensor, None where Lightning would read it at once."""
    site = script.calls.at(call)
    if site.has_splat or site.given(_DRAWS) is not None:
        return None
    edits = script.edits.replace(read.node, script.code(read.tensor))
    because = "a loss in float64 is averaged with all its digits, its number in float32"
    return Fix.close("Log the tensor itself", edits, because=because)
