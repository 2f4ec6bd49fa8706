"""TL212: a check or a timer waits for the device in every training step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Finding,
    Fix,
    Frequency,
    How,
    Impact,
    Kind,
    Loop,
    Note,
    Reading,
    Role,
    Rule,
    Script,
)

_TENSORS: Final = (Kind.TENSOR, Kind.LOSS)
_ASKS: Final = ("isfinite", "isnan", "isinf")
_MODULES: Final = ("math", "numpy", "torch")
_EXITS: Final = frozenset("sys.exit builtins.exit builtins.quit builtins.breakpoint".split())
_SHOWS: Final = frozenset("print info debug warning warn error critical exception".split())
_SYNCS: Final = tuple(
    f"torch.{device}.synchronize" for device in ("cuda", "xpu", "mps", "accelerator")
)
_MEASURES: Final = frozenset("benchmark bench profile timeit speed throughput latency test".split())
_LATE: Final = "a value that is not finite is noticed up to {every} steps later, or not at all"


class GuardWaitsEachStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the checks for finite values, and the timers, of each training step."""
        if not script.can_use_accelerator:
            return
        yield from self._guards(script)
        yield from self._timers(script)

    def _guards(self, script: Script) -> Iterator[Finding]:
        every = self.settings["every"]
        for guard in _guards(script):
            shown = script.brief(guard.asked)
            message = (
                f"`{shown}` waits for the device in every step, only to stop if "
                f"`{script.code(guard.tensor)}` is not finite; ask every {every}th step"
            )
            stays = _staying(script, guard)
            notes = () if stays is None else (Note(script.span(stays), "the step waits here, too"),)
            fix = _fix(script, guard, every) if stays is None else None
            impact: Impact | None = "low" if stays is not None else None
            yield Finding(self.code, script.span(guard.asked), message, fix, notes, impact)

    def _timers(self, script: Script) -> Iterator[Finding]:
        for calls in _timers(script):
            message = (
                f"`{script.code(calls[0])}` waits for the device in every step to time it; record "
                "events (`torch.cuda.Event(enable_timing=True)`) and read them at the log line"
            )
            notes = tuple(Note(script.span(call), "waits as well") for call in calls[1:])
            yield Finding(self.code, script.span(calls[0]), message, None, notes, "low")


class _Guard(NamedTuple):
    """A test that stops the training if a tensor holds a value that is not finite."""

    holder: cst.If | cst.Assert
    asked: cst.Call
    """The call that waits."""
    tensor: cst.BaseExpression
    loop: Loop


def _guards(script: Script) -> Iterator[_Guard]:
    """Yield the checks for finite values in each pass of a training loop."""
    holders: list[cst.If | cst.Assert] = [*script.all(cst.If), *script.all(cst.Assert)]
    for holder in holders:
        asked = _asked(script, holder.test)
        loop = script.batch_loop(holder) if asked is not None else None
        if asked is None or loop is None or loop.role is not Role.TRAIN_BATCH:
            continue
        if script.frequency(holder) is not Frequency.EVERY_PASS or script.is_round(loop):
            continue
        if isinstance(holder, cst.If) and not _only_stops(script, holder):
            continue
        if any(True for each in script.within(holder.test, cst.BinaryOperation) if _counts(each)):
            continue
        if not _is_scaled(script, loop):
            yield _Guard(holder, *asked, loop)


def _counts(node: cst.BinaryOperation) -> bool:
    return isinstance(node.operator, cst.Modulo)


def _asked(script: Script, test: cst.BaseExpression) -> tuple[cst.Call, cst.BaseExpression] | None:
    """Return the call of a test that reads a tensor on the device, and the tensor."""
    for call in script.within(test, cst.Call):
        module, _, last = (script.name(call.func) or "").rpartition(".")
        given: cst.BaseExpression | None = None
        if not module and isinstance(call.func, cst.Attribute):
            last, given = call.func.attr.value, call.func.value
        elif module in _MODULES and len(call.args) == 1:
            given = call.args[0].value
        if last not in _ASKS or given is None:
            continue
        if script.kind(given) in _TENSORS and not script.on_host(given):
            return call, given
        read = next(script.readings(given), None) or _read_before(script, given)
        if read is not None and script.kind(read.tensor) in _TENSORS:
            return read.node, read.tensor
    return None


def _read_before(script: Script, node: cst.BaseExpression) -> Reading | None:
    """Return the reading that a name holds."""
    bindings = script.scopes.reaching(node) if isinstance(node, cst.Name) else ()
    value = bindings[0].value if len(bindings) == 1 else None
    if value is None or bindings[0].how is not How.ASSIGN:
        return None
    found = next(script.readings(value), None)
    return found if found is not None and found.node is value else None


def _only_stops(script: Script, holder: cst.If) -> bool:
    """Return whether an `if` only ends the training or says something."""
    if holder.orelse is not None:
        return False
    return all(
        isinstance(line, cst.SimpleStatementLine)
        and all(_is_end(script, each) for each in line.body)
        for line in holder.body.body
    )


def _is_end(script: Script, line: cst.BaseSmallStatement) -> bool:
    """Return whether a statement ends the training, or shows something."""
    if isinstance(line, (cst.Raise, cst.Break, cst.Return, cst.Assert)):
        return True
    if not isinstance(line, cst.Expr) or not isinstance(line.value, cst.Call):
        return False
    func = line.value.func
    last = func.attr if isinstance(func, cst.Attribute) else func
    shows = isinstance(last, cst.Name) and last.value in _SHOWS
    return shows or script.name(func) in _EXITS


def _is_scaled(script: Script, loop: Loop) -> bool:
    """Return whether a loop scales its gradients, whose scaler waits in each step anyway."""
    return any(script.tree.inside(each.node, loop.node) for each in script.scaling.of("step"))


def _staying(script: Script, guard: _Guard) -> cst.CSTNode | None:
    """Return another read of each pass of the same loop."""
    for reading in script.readings(guard.loop.node.body):
        if script.frequency(reading.node) is not Frequency.EVERY_PASS:
            continue
        if not script.tree.inside(reading.node, guard.holder) and reading.node is not guard.asked:
            return reading.node
    return None


def _fix(script: Script, guard: _Guard, every: int) -> Fix | None:
    """Return a fix that asks only now and then, None if the passes are not counted."""
    counter = script.counter(guard.loop.node)
    test = guard.holder.test
    if counter is None or not script.tree.inside(guard.asked, guard.holder):
        return None
    if isinstance(guard.holder, cst.Assert) or isinstance(test, cst.BooleanOperation):
        return None
    edits = script.rewrite.insert(script.span(test).start, f"{counter} % {every} == 0 and ")
    because = _LATE.format(every=every)
    return Fix.unsafe(f"Ask every {every}th step", edits, because=because)


# -- timers -----------------------------------------------------------------------


def _timers(script: Script) -> Iterator[Sequence[cst.Call]]:
    """Yield the calls that wait beside a clock in each pass of one training loop."""
    found: dict[int, list[cst.Call]] = {}
    for site in script.calls(*_SYNCS):
        loop = script.batch_loop(site.node)
        if loop is None or loop.role is not Role.TRAIN_BATCH or _measures(script, site.node):
            continue
        timed = script.frequency(site.node) is Frequency.RARE
        if timed and script.frequency(site.node, within=loop.node) is Frequency.EVERY_PASS:
            found.setdefault(id(loop.node), []).append(site.node)
    yield from found.values()


def _measures(script: Script, node: cst.CSTNode) -> bool:
    """Return whether the function around a node exists to measure."""
    function = script.function(node)
    return function is not None and not _MEASURES.isdisjoint(script.words(function.name.value))
