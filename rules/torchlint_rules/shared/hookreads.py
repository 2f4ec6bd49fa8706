"""Waits in the methods that a framework calls for each batch: a part of TL201 and TL202."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    TENSORS,
    Finding,
    Fix,
    Form,
    Frequency,
    Kept,
    Kind,
    Note,
    Rate,
    Reading,
    Role,
    Script,
    receiver_of,
)
from torchlint_rules.shared.deferrable import named_large
from torchlint_rules.shared.engineoutputs import reads_outputs
from torchlint_rules.shared.loggedvalues import shown
from torchlint_rules.shared.loglines import told_by

_LOG: Final = "log"
_DRAWS: Final = "prog_bar"
_AVERAGES: Final = "sync_dist"
_GRADIENT_NORMS: Final = tuple(
    f"{package}.utilities.{module}grad_norm"
    for package in ("lightning.pytorch", "pytorch_lightning")
    for module in ("", "grads.")
)
_PRINT: Final = "builtins.print"
_TENSORS: Final = (*TENSORS, Kind.UNKNOWN)
"""Unknown is what a detached value is, where nothing shows what computed it."""
_HOLDERS: Final = (cst.DictElement, cst.Dict, cst.Element, cst.Tuple, cst.List, cst.Arg)
_SHARES: Final = "read as well: keep this on the device, too"


class HookWait(NamedTuple):
    """What waits in a method for a value that nothing else there needs."""

    function: cst.FunctionDef
    rate: Rate
    node: cst.BaseExpression
    """What is reported: the read, or the call that shows a tensor."""
    message: str
    fix: Fix | None


def hook_reads(script: Script, code: str, rate: Rate) -> Iterator[Finding]:
    """Yield a finding for each wait of a method that only logs, shows or keeps a value."""
    together: list[HookWait] = []
    for each in script.once(hook_waits):
        if each.rate is rate:
            if together and not _shares_wait(script, together[-1], each):
                yield _one(script, code, together)
                together = []
            together.append(each)
    if together:
        yield _one(script, code, together)


def _shares_wait(script: Script, first: HookWait, second: HookWait) -> bool:
    """Return whether the device gets no work between two places of a method."""
    return first.function is second.function and not script.readings.works_between(
        first.node, second.node, first.function
    )


def _one(script: Script, code: str, waits: list[HookWait]) -> Finding:
    """Return one finding for several that share a wait, with a fix that leaves none of them."""
    first, *others = waits
    notes = tuple(Note(script.span(each.node), _SHARES) for each in others)
    fixes = [each.fix for each in waits if each.fix is not None]
    fix = Fix.of_several(fixes) if len(fixes) == len(waits) else None
    return Finding(code, script.span(first.node), first.message, fix, notes)


def hook_waits(script: Script) -> list[HookWait]:
    """Return the waits of the file's methods that a framework calls, in source order."""
    found: list[HookWait] = []
    if script.program.devices.can_use_accelerator:
        for function in script.tree.own(cst.FunctionDef):
            rate = script.loops.rate(function)
            if rate in (Rate.STEP, Rate.EVALUATION_STEP):
                waits = [*_reads(script, function, rate), *_lines(script, function, rate)]
                waits += _norms(script, function, rate)
                found += sorted(waits, key=lambda each: script.tree.order(each.node))
    return found


def _reads(script: Script, function: cst.FunctionDef, rate: Rate) -> Iterator[HookWait]:
    """Yield the reads of a method that it only logs, returns or keeps."""
    kept = {id(each.reading.node): each for each in script.readings.waits.of_step(function)}
    for read in script.readings.within(function.body):
        if not _is_idle(script, function, read, kept.get(id(read.node))):
            continue
        call = _logged_by(script, read)
        fix = _passed_on(script, call, read) if call is not None else None
        tensor = script.tree.brief(read.tensor)
        if call is not None:
            cure = f"pass `{tensor}` itself, Lightning reads it when it shows it"
        elif read.form is not Form.NUMBER and rate is Rate.EVALUATION_STEP:
            cure = f"keep `{tensor}` on the device and read all of them after the last batch"
        else:
            cure = f"keep `{tensor}.detach()` and read it every so many steps"
        message = (
            f"`{script.tree.brief(read.node)}` in `{function.name.value}` waits for the device in "
            f"every batch: {cure}"
        )
        yield HookWait(function, rate, read.node, message, fix)


def _lines(script: Script, function: cst.FunctionDef, rate: Rate) -> Iterator[HookWait]:
    """Yield the calls of a method that show a tensor as it is, or as an array."""
    role = Role.TRAIN_BATCH if rate is Rate.STEP else Role.EVAL_BATCH
    for line in script.tree.within(function.body, cst.Expr):
        call = line.value
        if not isinstance(call, cst.Call):
            continue
        found = shown(script, told_by(script, call, role), None)
        if found is None or not _runs_each_time(script, function, call):
            continue
        place = found.place
        read = script.readings.reading(place) if isinstance(place, cst.Call) else None
        if read is not None and read.form is Form.NUMBER:
            continue
        verb = "print" if script.name(call.func) == _PRINT else "log"
        message = (
            f"`{script.code(call.func)}` in `{function.name.value}` waits for "
            f"`{script.tree.brief(place)}` in every batch: {verb} it every so many steps"
        )
        yield HookWait(function, rate, call, message, None)


def _norms(script: Script, function: cst.FunctionDef, rate: Rate) -> Iterator[HookWait]:
    """Yield the calls by which Lightning reads the norm of each gradient."""
    for site in script.calls.of(*_GRADIENT_NORMS):
        if _runs_each_time(script, function, site.node):
            message = (
                f"`{script.tree.brief(site.node)}` in `{function.name.value}` waits for the norm of"
                " each parameter in every batch: ask for them every so many steps"
            )
            yield HookWait(function, rate, site.node, message, None)


def _runs_each_time(script: Script, function: cst.FunctionDef, node: cst.CSTNode) -> bool:
    """Return whether each call of a method reaches a node of its own."""
    own = script.scopes.function(node) is function
    return own and script.loops.frequency(node) is Frequency.EVERY_PASS


def _is_idle(script: Script, function: cst.FunctionDef, read: Reading, kept: Kept | None) -> bool:
    """Return whether a read runs in every batch and nothing else there needs its value."""
    if not _runs_each_time(script, function, read.node):
        return False
    held = kept.target if kept is not None and _outlives(script, function, kept) else None
    kind = script.kind(read.tensor)
    if read.form is not Form.NUMBER:
        if held is None:
            return kind in TENSORS and _is_scored(script, read)
        return kind in TENSORS and not named_large(script, read.tensor, held)
    if held is not None or script.readings.is_logged(read.node):
        return kind in _TENSORS
    return kind in TENSORS and _is_output(script, read, kept)


def _is_scored(script: Script, read: Reading) -> bool:
    """Return whether an array is only read to log what the host computes of it."""
    taker, around = script.tree.taker(read.node), script.tree.parent(read.node)
    computes = taker and around and script.readings.waits.computations.pass_on(taker, around)
    return bool(computes or isinstance(around, cst.Assign)) and script.readings.is_logged(read.node)


def _outlives(script: Script, function: cst.FunctionDef, kept: Kept) -> bool:
    """Return whether a method keeps a value beyond its call, or a loss wherever."""
    if kept.target is None:
        return False
    is_loss = script.kind(kept.reading.tensor) is Kind.LOSS
    if not is_loss and not script.code(kept.target).startswith("self."):
        return kept.is_returned and bool(script.functions.callers(function))
    return True


def _is_output(script: Script, read: Reading, kept: Kept | None) -> bool:
    """Return whether a framework gets a number that nothing reads before the epoch ends.

    Lightning keeps what a step returns, and so does an engine of Ignite, for its handlers.
    """
    owner = script.loops.owner(read.node)
    if owner == "lightning":
        return kept is not None and kept.is_returned
    if owner != "ignite" or reads_outputs(script):
        return False
    output = script.tree.parent(read.node)
    while isinstance(output, _HOLDERS) or (
        isinstance(output, cst.Call) and script.name(output.func) == "torch.tensor"
    ):
        output = script.tree.parent(output)
    return isinstance(output, cst.Return) and all(
        each.form is Form.NUMBER for each in script.readings.within(output)
    )


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


def _may_be_on_host(script: Script, tensor: cst.BaseExpression) -> bool:
    """Return whether a tensor is, or may be, one of the host, which NCCL cannot average."""
    origin = script.values.origins.of(tensor)
    return not origin.complete or any(map(script.values.placement.on_host, origin.values))


def _passed_on(script: Script, call: cst.Call, read: Reading) -> Fix | None:
    """Return the fix that logs the tensor, None where Lightning would read it at once."""
    site = script.calls.at(call)
    if site.has_splat or site.given(_DRAWS) is not None:
        return None
    if site.given(_AVERAGES) is not None and _may_be_on_host(script, read.tensor):
        return None
    edits = script.edits.replace(read.node, script.code(read.tensor))
    because = "a loss in float64 is averaged with all its digits, its number in float32"
    return Fix.close("Log the tensor itself", edits, because=because)
