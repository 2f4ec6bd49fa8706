"""Additions that force a sync in every batch: the common part of TL201 and TL202."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    CALLERS,
    Accumulation,
    Adding,
    End,
    Finding,
    Fix,
    Form,
    Impact,
    Kind,
    Loop,
    Note,
    Reading,
    Role,
    Safety,
    Script,
    Wait,
)
from torchlint_rules.shared.deferrable import (
    DeferrableSum,
    deferrable_sums,
    is_shown,
    keeps_outputs,
    named_large,
)
from torchlint_rules.shared.loglines import log_lines
from torchlint_rules.shared.passwaits import staying
from torchlint_rules.shared.storednumbers import holder_on_device

_SHARES: Final = "read one by one as well: keep this on the device, too"
_STAYS: Final = "every pass waits here as well: read both once"


def syncs(script: Script, code: str, role: Role) -> Iterator[Finding]:
    """Yield a finding for every avoidable sync in the batch loops with a role."""
    if not script.readings.are_in_file or not script.program.devices.can_use_accelerator:
        return
    sums = [each for loop in script.loops.of(role) for each in deferrable_sums(script, loop)]
    shown = {id(each.shown.place) for each in script.once(log_lines)}
    sums = [each for each in sums if not shown.issuperset(id(read.node) for read in each.found)]
    said = {id(read.node) for each in sums for read in each.found} | shown
    found = [_found(script, code, each) for each in sums]
    for wait in _indirect(script, role):
        if id(wait.reading.node) not in said and holder_on_device(script, wait.reading) is None:
            said.add(id(wait.reading.node))
            notes = script.loops.repetition.notes_on(wait.loop.node)
            span = script.span(wait.reading.node)
            kept = End.KEPT in wait.ends and keeps_outputs(script, wait.reading, wait.loop)
            impact = "low" if kept else _impact(script, wait.loop)
            finding = Finding(code, span, _told(script, wait), None, notes, impact)
            found.append(_Found(wait.loop, (wait.reading.node,), finding))
    told = [read for each in found for read in each.reads]
    told += [each.shown.place for each in script.once(log_lines)]
    yield from _folded(script, found, told)


class _Found(NamedTuple):
    """A finding, with the loop that waits and the reads that do."""

    loop: Loop
    reads: tuple[cst.CSTNode, ...]
    finding: Finding


def _found(script: Script, code: str, each: DeferrableSum) -> _Found:
    """Return the finding for a sum."""
    reads = tuple(read.node for read in each.found)
    message = _message(script, each.accumulation, each.found)
    loop = each.accumulation.loop
    kept = each.accumulation.adding is not Adding.SUM
    whole = kept and keeps_outputs(script, each.found[0], loop)
    impact = "low" if whole else _impact(script, loop)
    told = Finding(code, script.span(reads[0]), message, each.fix, impact=impact)
    return _Found(loop, reads, told)


def _impact(script: Script, loop: Loop) -> Impact | None:
    """Return the impact: less where nothing trains, or an evaluation counts through a few items."""
    counted = isinstance(loop.node, cst.For) and script.values.iteration.counts(loop.node.iter)
    few = counted and loop.role is Role.EVAL_BATCH
    return None if _trains(script) and not few else "medium"


def _folded(script: Script, found: list[_Found], told: list[cst.CSTNode]) -> Iterator[Finding]:
    """Yield findings, those that share a wait as one with notes and one fix.

    `told` are the reads and log lines that some finding is about.
    """
    open_: dict[tuple[int, int], list[_Found]] = {}
    whole: list[list[_Found]] = []
    for each in sorted(found, key=lambda one: one.finding.span.start):
        key = id(each.loop.node), id(script.scopes.home(each.reads[0]))
        together = open_.get(key)
        if together is None or not _shares_wait(script, together[0], each.reads[0]):
            together = open_[key] = []
            whole.append(together)
        together.append(each)
    whole = [group for group in whole if not _has_waited(script, group[0], told)]
    gone = [
        read for group in whole if _fix(group) is not None for one in group for read in one.reads
    ]
    yield from (_one(script, together, gone) for together in whole)


def _has_waited(script: Script, found: _Found, told: list[cst.CSTNode]) -> bool:
    """Return whether the pass waits for what it needs right before, so waits no more."""
    stays, read = staying(script, found.loop, told), found.reads[0]
    copies = isinstance(read, cst.Call) and not any(script.tree.within(read.func, cst.Call))
    waits = [each for each in stays if _is_needed(script, each, copies)]
    if _follows(script, found.reads[0], waits, _body(script, found)):
        return True
    calls = _calls(script, found)
    return bool(calls) and all(_follows(script, one, waits, found.loop.node) for one in calls)


def _is_needed(script: Script, node: cst.CSTNode, copies: bool) -> bool:
    """Return whether a host sync is for a number, or may be any read."""
    reading = script.readings.reading(node) if isinstance(node, cst.Call) else None
    return reading is not None and (copies or reading.form is Form.NUMBER)


def _follows(
    script: Script,
    place: cst.CSTNode,
    waits: Sequence[cst.CSTNode],
    body: cst.For | cst.While | cst.FunctionDef,
) -> bool:
    """Return whether the device gets no work between a host sync before a place and the place."""
    return any(
        script.tree.order(node) < script.tree.order(place)
        and script.scopes.home(node) is script.scopes.home(place)
        and not script.readings.works_between(place, node, body)
        for node in waits
    )


def _calls(script: Script, found: _Found) -> list[cst.Call]:
    """Return the calls in a loop that run the function which reads a value for it."""
    function = script.scopes.function(found.reads[0])
    if function is None or script.tree.inside(found.reads[0], found.loop.node):
        return []
    calls = script.functions.own(found.loop.node.body, cst.Call)
    return [one for one in calls if function in script.functions.callees(one)]


def _shares_wait(script: Script, found: _Found, node: cst.CSTNode) -> bool:
    """Return whether the device gets no work between a read and another place of its pass."""
    return script.scopes.home(node) is script.scopes.home(
        found.reads[0]
    ) and not script.readings.works_between(found.reads[0], node, _body(script, found))


def _fix(together: list[_Found]) -> Fix | None:
    """Return the fix that takes all of some reads out of a loop, None if it would leave one."""
    fixes = [each.finding.fix for each in together if each.finding.fix is not None]
    return Fix.of_several(fixes) if len(fixes) == len(together) else None


def _one(script: Script, together: list[_Found], gone: list[cst.CSTNode]) -> Finding:
    """Return one finding for several that share a wait, with a fix that leaves none of them.

    `gone` are the reads that the fixes of the file take out of loops. A fix that costs something
    must leave no other wait of the pass either.
    """
    first, *others = (each.finding for each in together)
    notes = [*first.notes, *(Note(each.span, _SHARES) for each in others)]
    fix = _fix(together)
    if fix is not None:
        stays = [
            node
            for node in staying(script, together[0].loop, gone)
            if fix.safety is Safety.UNSAFE
            or _shares_wait(script, together[0], node)
            or script.scopes.home(node) is not script.scopes.home(together[0].reads[0])
        ]
        notes += (Note(script.span(node), _STAYS) for node in stays)
        fix = None if stays else fix
    return replace(first, fix=fix, notes=tuple(notes))


def _body(script: Script, found: _Found) -> cst.For | cst.While | cst.FunctionDef:
    """Return the loop that waits, or the function that it calls for it."""
    function = script.scopes.function(found.reads[0])
    inside = script.tree.inside(found.reads[0], found.loop.node)
    return found.loop.node if inside or function is None else function


def _indirect(script: Script, role: Role) -> Iterator[Wait]:
    """Yield the avoidable reads that go through functions, tuples and texts."""
    elsewhere: set[int] = set()
    waits = script.once(_in_training)
    if role is Role.EVAL_BATCH:
        # A function that training calls as well is the training loop's.
        elsewhere = {id(wait.reading.node) for wait in waits}
        waits = [wait for loop in script.loops.of(role) for wait in script.readings.waits.of(loop)]
    for wait in waits:
        if id(wait.reading.node) in elsewhere or script.loops.is_round(wait.loop):
            continue
        if wait.reading.cast and not is_shown(script, wait.reading):
            continue
        if _is_played(script, wait):
            continue
        if _walks_entries(script, wait):
            continue
        if wait.reading.form is not Form.NUMBER and _is_bulky(script, wait):
            continue
        yield wait


def _is_played(script: Script, wait: Wait) -> bool:
    """Return whether a pass steps an environment, and reads a value before it trains, if it does.

    What it reads then comes with the action, for which it waits anyway.
    """
    return (
        script.kind(wait.reading.tensor) is not Kind.LOSS
        and script.loops.environments.are_stepped_in(wait.loop.node)
        and not script.readings.follows_update(wait.reading.node)
        and not _is_in_update(script, wait)
    )


def _is_in_update(script: Script, wait: Wait) -> bool:
    """Return whether a function that a pass calls reads a value to train with it, not to act."""
    home, node = script.scopes.function(wait.loop.node), wait.reading.node
    for _ in range(CALLERS):
        function = script.scopes.function(node)
        if (
            function is None
            or function is home
            or script.loops.environments.are_stepped_in(function)
        ):
            return False
        if any(map(script.loops.is_step, script.functions.run_in(function.body))):
            return True
        calls = script.functions.callers(function)
        if len(calls) != 1:
            return False
        node = calls[0]
    return False


def _in_training(script: Script) -> list[Wait]:
    return [
        wait
        for loop in script.loops.of(Role.TRAIN_BATCH)
        for wait in script.readings.waits.of(loop)
    ]


def _walks_entries(script: Script, wait: Wait) -> bool:
    """Return whether a loop inside the batch loop reads a tensor entry by entry, as TL209 says."""
    inner = next(script.loops.around(wait.reading.node), wait.loop).node
    tensor = wait.reading.tensor
    if inner is wait.loop.node or not isinstance(inner, cst.For):
        return False
    index = script.code(inner.target)
    return isinstance(tensor, cst.Subscript) and any(
        name.value == index for name in script.tree.within(tensor, cst.Name)
    )


def _is_bulky(script: Script, wait: Wait) -> bool:
    """Return whether values of a batch may be too large for the device, or must be on the host."""
    if isinstance(wait.target, cst.Subscript) and End.KEPT in wait.ends:
        # a slot of an array may take a whole batch
        if isinstance(script.tree.parent(wait.target), cst.AssignTarget):
            return True
    read, kept = wait.reading.tensor, [] if wait.target is None else [wait.target]
    if _is_parameter(script, read):
        return any(named_large(script, each) for each in kept)
    return named_large(script, read, *kept)


def _is_parameter(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a value is named by a helper, for whatever it gets."""
    bindings = script.scopes.reaching(node)
    return bool(bindings) and all(isinstance(each.node, cst.Param) for each in bindings)


def _told(script: Script, wait: Wait) -> str:
    name, when = _terms(script, wait.loop)
    start = f"{_quoted(script, wait.reading.node)} waits for the device in every {name}"
    if End.KEPT in wait.ends:
        kept = f" in {_quoted(script, wait.target)}" if wait.target is not None else ""
        return f"{start}, and the value is only kept{kept}: keep tensors, read them {when}"
    if End.BACK in wait.ends:
        cure = "leave the number on the device"
        return f"{start}, and the value only goes back into tensors there: {cure}"
    if End.RARE in wait.ends:
        return f"{start}, but only an occasional report uses the value: read it there"
    line = script.tree.parent(wait.reading.node)
    held = line.targets[0].target if isinstance(line, cst.Assign) else None
    bound = script.scopes.stored(held) if isinstance(held, cst.Name) else None
    if bound is not None and not any(use is not held for use in script.scopes.uses(bound)):
        return f"{start}, and nothing uses the value: leave it out"
    return f"{start}, but only the last value is used: read it after the loop"


def _message(script: Script, accumulation: Accumulation, readings: list[Reading]) -> str:
    nearest = next(script.loops.around(accumulation.node), accumulation.loop)
    often = "once" if nearest.node is accumulation.loop.node else "several times"
    if often == "once" and len(readings) > 1:
        often = "twice" if len(readings) == 2 else f"{len(readings)} times"
    shown = " and ".join(_quoted(script, each.node) for each in readings[:2])
    wait = "wait" if len(readings) > 1 else "waits"
    target = _quoted(script, accumulation.target)
    name, when = _terms(script, accumulation.loop)
    if script.readings.accumulators.is_emptied(accumulation):
        when = "where the loop empties it"
    if accumulation.adding is Adding.SUM:
        cure = f"add up {target} on the device and read it {when}"
    elif accumulation.adding is Adding.METER and all(each.form is Form.NUMBER for each in readings):
        cure = f"hand {target} the detached tensor and read it {when}"
    else:
        cure = f"keep tensors in {target} and read them {when}"
    return f"{shown} {wait} for the device {often} per {name}: {cure}"


def _terms(script: Script, loop: Loop) -> tuple[str, str]:
    """Return what one pass of a loop is called, and when to read what its passes add up."""
    if any(each.role is loop.role for each in script.loops.around(loop.node)):
        return "pass", "once per step"
    when = "once per epoch" if _trains(script) else "once after the loop"
    return f"batch of {_quoted(script, loop.loader)}" if loop.loader is not None else "step", when


def _trains(script: Script) -> bool:
    """Return whether something in sight trains, so that an evaluation comes again and again."""
    return next(script.calls.of_methods("backward"), None) is not None or bool(
        script.optimizers.steps or script.loops.of(Role.EPOCH)
    )


def _quoted(script: Script, node: cst.CSTNode) -> str:
    return f"`{script.tree.brief(node)}`"
