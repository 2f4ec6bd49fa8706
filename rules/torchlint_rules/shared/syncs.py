"""Additions that force a sync in every batch: the common part of TL201 and TL202."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Accumulation,
    Adding,
    End,
    Finding,
    Fix,
    Form,
    Frequency,
    Impact,
    Kind,
    Loop,
    Note,
    Reading,
    Role,
    Script,
    Wait,
)
from torchlint_rules.shared.deferredsums import DeferredSum
from torchlint_rules.shared.occasionalreads import occasional_reads

_LARGE: Final = re.compile(
    r"(?:\w*_)?(?:im(?:g|age)s?|recons?\w*|samples?|masks?|feat\w*|embed\w*|emb|hiddens?|attn|"
    r"attentions?|maps?|pixels|frames?|videos?|audios?|wavs?|mels?|spec\w*|latents?|fakes?|xs?|zs?|hs?)(?:_\w+)?",
    re.IGNORECASE,
)
_SHARES: Final = "read one by one as well: keep this on the device, too"
_LEFT: Final = "waits in the same pass, and the fix leaves it: keep this on the device by hand"
_STAYS: Final = "every pass waits here as well: read both once"
_TENSORS_ONLY: Final = ("detach", "cpu")
_HANDED_OFF: Final = frozenset({"submit", "apply_async", "map_async", "starmap_async"})
"""Methods that give their arguments to another process, which cannot use this device."""
_WRITERS: Final = frozenset(
    (
        "write writerow writerows dump save savez savetxt save_image imsave imwrite imshow plot "
        "savefig savemat to_csv create_dataset open"
    ).split()
)


def syncs(script: Script, code: str, role: Role) -> Iterator[Finding]:
    """Yield a finding for every avoidable sync in the batch loops with a role."""
    if not script.loops.of(role) or not script.program.devices.can_use_accelerator:
        return
    said: dict[int, Reading] = {}
    sums = list(_deferrable(script, role, said))
    early = list(occasional_reads(script, code, role))
    spans = {each.span for each in early}
    indirect: list[Wait] = []
    for wait in _indirect(script, role):
        if id(wait.reading.node) not in said and script.span(wait.reading.node) not in spans:
            said[id(wait.reading.node)] = wait.reading
            indirect.append(wait)
    found = [
        _Found(
            each.accumulation.loop,
            each.found[0].node,
            _finding(script, code, each, said),
        )
        for each in sums
    ]
    for wait in indirect:
        notes = script.loops.repetition.notes_on(wait.loop.node)
        span = script.span(wait.reading.node)
        told = Finding(code, span, _told(script, wait), None, notes)
        found.append(_Found(wait.loop, wait.reading.node, told))
    yield from _folded(script, found)
    yield from early


class _Found(NamedTuple):
    """A finding, with the loop that waits and the read that does."""

    loop: Loop
    read: cst.CSTNode
    finding: Finding


def _folded(script: Script, found: list[_Found]) -> Iterator[Finding]:
    """Yield findings, those that share a wait as one with notes and one fix."""
    open_: dict[tuple[int, int], list[_Found]] = {}
    for each in sorted(found, key=lambda one: one.finding.span.start):
        key = id(each.loop.node), id(script.scopes.home(each.read))
        together = open_.setdefault(key, [])
        if together and not _goes_with(script, together, each):
            yield _one(together)
            together.clear()
        together.append(each)
    yield from (_one(together) for together in open_.values())


def _goes_with(script: Script, together: list[_Found], one: _Found) -> bool:
    """Return whether a read shares a wait and the kind of fix with earlier ones."""
    if script.readings.works_between(together[0].read, one.read, _body(script, one)):
        return False
    return len({(fix.safety, fix.because) for fix in _fixes((*together, one))}) < 2


def _fixes(together: Iterable[_Found]) -> list[Fix]:
    return [each.finding.fix for each in together if each.finding.fix is not None]


def _one(together: list[_Found]) -> Finding:
    """Return one finding for several: at the first that has a fix, the others as notes."""
    fixes = _fixes(together)
    findings = [each.finding for each in together]
    first = next((each for each in findings if each.fix is not None), findings[0])
    notes = (
        Note(each.span, _LEFT if fixes and each.fix is None else _SHARES)
        for each in findings
        if each is not first
    )
    fix = (Fix.of_several(fixes) or fixes[0]) if fixes else None
    return replace(first, fix=fix, notes=(*first.notes, *notes))


def _body(script: Script, found: _Found) -> cst.For | cst.While | cst.FunctionDef:
    """Return the loop that waits, or the function that it calls for it."""
    function = script.scopes.function(found.read)
    inside = script.tree.inside(found.read, found.loop.node)
    return found.loop.node if inside or function is None else function


class _Sum(NamedTuple):
    """An addition whose value could stay on the device, with its reads."""

    accumulation: Accumulation
    found: list[Reading]
    fixable: bool


def _deferrable(script: Script, role: Role, said: dict[int, Reading]) -> Iterator[_Sum]:
    """Yield the additions whose reads no pass needs, and add these reads to `said`."""
    waiting = [
        each
        for each in script.readings.accumulations(role)
        if not script.readings.accumulators.used_each_pass(each)
    ]
    besides: list[cst.CSTNode] = [each.node for each in waiting]
    for accumulation in waiting:
        direct = _readings(script, accumulation)
        found = direct or _named(script, accumulation, besides)
        if not found or id(found[0].node) in said:
            continue
        if not direct and _writes_results(script, accumulation, found):
            continue
        apart = [*besides, *script.readings.waits.statements(accumulation.loop)]
        if any(_needed(script, accumulation, each, apart) for each in found):
            continue
        plain = bool(direct) or isinstance(accumulation.values[0], cst.Name)
        fixable = plain and all(_is_shown(script, each) for each in found)
        said.update((id(each.node), each) for each in found)
        yield _Sum(accumulation, found, fixable)


def _finding(script: Script, code: str, each: _Sum, said: Mapping[int, Reading]) -> Finding:
    """Return the finding for a sum, without a fix where its pass waits beside it anyway."""
    accumulation, found, fixable = each
    stays = _staying(script, accumulation, found[0], said)
    fix = DeferredSum(script, accumulation).fix() if fixable and stays is None else None
    notes = () if stays is None else (Note(script.span(stays), _STAYS),)
    message = _message(script, accumulation, found)
    impact: Impact | None = None if _trains(script) else "medium"
    return Finding(code, script.span(found[0].node), message, fix, notes, impact=impact)


def _staying(
    script: Script, accumulation: Accumulation, read: Reading, said: Mapping[int, Reading]
) -> cst.Call | None:
    """Return a read of the same pass that stays, with no work for the device in between."""
    loop = accumulation.loop
    for other in script.once(_method_reads):
        node = other.node
        if (
            id(node) in said
            or script.loops.batch_loop(node) is not loop
            or script.values.placement.on_host(other.tensor)
        ):
            continue
        if not _is_shown(script, other) or script.readings.is_logged(node):
            continue
        if script.loops.frequency(node) is not Frequency.EVERY_PASS:
            continue
        if not script.readings.works_between(node, read.node, loop.node):
            return node
    return None


def _method_reads(script: Script) -> list[Reading]:
    return list(script.readings.within(script.tree.module))


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
        if not _is_shown(script, wait.reading):
            continue
        is_loss = script.kind(wait.reading.tensor) is Kind.LOSS
        if not is_loss and _drives_environment(script, wait.loop.node):
            continue
        if _walks_entries(script, wait):
            continue
        if wait.reading.form is not Form.NUMBER and _is_bulky(script, wait):
            continue
        yield wait


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
    named = [*([] if _is_parameter(script, read) else [read]), *kept]
    if (
        script.values.dtypes.is_integral(wait.reading.tensor)
        or script.kind(wait.reading.tensor) is Kind.LOSS
    ):
        return False
    return any(_LARGE.fullmatch(_root(node)) for node in named)


def _is_parameter(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether a value is named by a helper, for whatever it gets."""
    bindings = script.scopes.reaching(node) if isinstance(node, cst.Name) else ()
    return bool(bindings) and all(isinstance(each.node, cst.Param) for each in bindings)


def _told(script: Script, wait: Wait) -> str:
    loader = wait.loop.loader
    batch = f"batch of {_quoted(script, loader)}" if loader is not None else "step"
    start = f"{_quoted(script, wait.reading.node)} waits for the device in every {batch}"
    if End.KEPT in wait.ends:
        kept = f" in {_quoted(script, wait.target)}" if wait.target is not None else ""
        return f"{start}, and the value is only kept{kept}: keep tensors, read them {_when(script)}"
    if End.RARE in wait.ends:
        return f"{start}, but only an occasional report uses the value: read it there"
    return f"{start}, but only the last value is used: read it after the loop"


def _readings(script: Script, accumulation: Accumulation) -> list[Reading]:
    return [each for value in accumulation.values for each in script.readings.within(value)]


def _named(script: Script, accumulation: Accumulation, besides: list[cst.CSTNode]) -> list[Reading]:
    """Return the reads behind a name (`value = loss.item()`) that is only added up."""
    loop = accumulation.loop.node
    return [
        reading
        for value in accumulation.values
        for reading in script.readings.named(value, loop, besides)
    ]


def _is_shown(script: Script, reading: Reading) -> bool:
    """Return whether the file shows that a read value is a tensor."""
    if script.kind(reading.tensor) in (Kind.TENSOR, Kind.LOSS):
        return True
    return any(
        _last(call.func) in _TENSORS_ONLY for call in script.tree.within(reading.node, cst.Call)
    )


def _needed(
    script: Script, accumulation: Accumulation, reading: Reading, besides: list[cst.CSTNode]
) -> bool:
    """Return whether the host needs the value in the same iteration."""
    loop = accumulation.loop.node
    if script.readings.needed_in(loop, reading, besides) or _is_handed_off(script, accumulation):
        return True
    if reading.form is not Form.NUMBER and accumulation.adding is not Adding.SUM:
        if _is_large(script, accumulation, reading):
            return True
    return script.kind(reading.tensor) is not Kind.LOSS and _drives_environment(script, loop)


def _is_handed_off(script: Script, accumulation: Accumulation) -> bool:
    """Return whether what is kept is the work of another process (`pool.submit(score, value)`)."""
    return any(
        _last(call.func) in _HANDED_OFF
        for value in accumulation.values
        for call in script.tree.within(value, cst.Call)
    )


def _writes_results(script: Script, accumulation: Accumulation, found: list[Reading]) -> bool:
    """Return whether every batch also writes results to disk or plots them."""
    if all(each.form is Form.NUMBER for each in found):
        return False
    loop = accumulation.loop.node
    return bool(script.tree.among(script.once(_hot_writes), loop.body))


def _hot_writes(script: Script) -> list[cst.Call]:
    """Return the calls in every batch that write results to disk or plot them."""
    return [
        call
        for call in script.tree.all(cst.Call)
        if _last(call.func) in _WRITERS and script.loops.frequency(call) is Frequency.EVERY_PASS
    ]


def _last(func: cst.BaseExpression) -> str:
    if isinstance(func, cst.Attribute):
        return func.attr.value
    return func.value if isinstance(func, cst.Name) else ""


def _is_large(script: Script, accumulation: Accumulation, reading: Reading) -> bool:
    """Return whether names suggest that values of a batch are too large for the device."""
    if script.values.dtypes.is_integral(reading.tensor) or script.kind(reading.tensor) is Kind.LOSS:
        return False
    return any(_LARGE.fullmatch(_root(node)) for node in (reading.tensor, accumulation.target))


def _root(node: cst.BaseExpression) -> str:
    """Return the leftmost name of an expression."""
    while isinstance(node, (cst.Attribute, cst.Subscript, cst.Call)):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""


def _drives_environment(script: Script, loop: cst.CSTNode) -> bool:
    """Return whether a loop steps an environment, which needs the action on the host."""
    return bool(script.tree.among(script.once(_actions), loop))


def _actions(script: Script) -> list[cst.Call]:
    """Return the calls that step an environment."""
    return [
        site.node
        for site in script.calls.of_methods("step")
        if "env" in script.code(site.receiver).lower()
    ]


def _message(script: Script, accumulation: Accumulation, readings: list[Reading]) -> str:
    nearest = next(script.loops.around(accumulation.node), accumulation.loop)
    often = "once" if nearest.node is accumulation.loop.node else "several times"
    if often == "once" and len(readings) > 1:
        often = "twice" if len(readings) == 2 else f"{len(readings)} times"
    loader = accumulation.loop.loader
    batch = f"batch of {_quoted(script, loader)}" if loader is not None else "step"
    shown = " and ".join(_quoted(script, each.node) for each in readings[:2])
    wait = "wait" if len(readings) > 1 else "waits"
    target = _quoted(script, accumulation.target)
    when = (
        "where the loop empties it"
        if script.readings.accumulators.is_emptied(accumulation)
        else _when(script)
    )
    if accumulation.adding is Adding.SUM:
        cure = f"add up {target} on the device and read it {when}"
    elif accumulation.adding is Adding.METER and all(each.form is Form.NUMBER for each in readings):
        cure = f"hand {target} the detached tensor and read it {when}"
    else:
        cure = f"keep tensors in {target} and read them {when}"
    return f"{shown} {wait} for the device {often} per {batch}: {cure}"


def _when(script: Script) -> str:
    return "once per epoch" if _trains(script) else "once after the loop"


def _trains(script: Script) -> bool:
    """Return whether something in sight trains, so that an evaluation comes again and again."""
    return next(script.calls.of_methods("backward"), None) is not None or bool(
        script.optimizers.steps or script.loops.of(Role.EPOCH)
    )


def _quoted(script: Script, node: cst.CSTNode) -> str:
    return f"`{script.tree.brief(node)}`"
