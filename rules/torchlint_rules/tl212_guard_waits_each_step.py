"""TL212: a check or a timer waits for the device in every training step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import libcst as cst

from torchlint.api import Finding, Fix, Frequency, Impact, Note, Role, Rule, Script
from torchlint_rules.shared.alarms import reports_alarm
from torchlint_rules.shared.stepguards import StepGuard, step_guards

_SYNCS: Final = tuple(
    f"torch.{device}.synchronize" for device in ("cuda", "xpu", "mps", "accelerator")
)
_WAITS: Final = "waits as well"
_SKIPPING: Final = "a `GradScaler` with a fused optimizer skips such steps on the device"
_LATE: Final = "what the check is about is noticed up to {every} steps later, or not at all"


class GuardWaitsEachStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the checks for finite values, and the timers, of each training step."""
        if not script.program.devices.can_use_accelerator:
            return
        yield from self._guards(script)
        yield from self._alarms(script)
        yield from self._timers(script)

    def _guards(self, script: Script) -> Iterator[Finding]:
        together: dict[int, list[StepGuard]] = {}
        for guard in step_guards(script):
            if guard.tensor is not None:
                yield self._of_guard(script, guard)
            else:
                together.setdefault(id(script.scopes.home(guard.holder)), []).append(guard)
        for guards in together.values():
            first, *others = guards
            notes = tuple(Note(script.span(each.asked), _WAITS) for each in others)
            found = self._of_guard(script, first)
            yield replace(found, notes=(*found.notes, *notes))

    def _of_guard(self, script: Script, guard: StepGuard) -> Finding:
        """Return the finding for a check."""
        every = self.settings["every"]
        shown = script.tree.brief(guard.asked)
        only, cure = "to raise an error if it fails", f"check every {every}th step"
        if guard.tensor is not None:
            only = f"to stop if `{script.code(guard.tensor)}` is not finite"
        if guard.tensor is not None and guard.skips:
            only, cure = f"to skip it if `{script.code(guard.tensor)}` is not finite", _SKIPPING
        message = f"`{shown}` waits for the device in every step, only {only}; {cure}"
        stays = _staying(script, guard) if guard.tensor is not None else None
        notes = () if stays is None else (Note(script.span(stays), "the step waits here, too"),)
        fix = _fix(script, guard, every) if stays is None and not guard.skips else None
        impact: Impact | None = "low" if stays is not None or guard.skips else None
        callers = script.loops.repetition.notes_on_callers(guard.holder)
        return Finding(
            self.code, script.span(guard.asked), message, fix, (*notes, *callers), impact
        )

    def _alarms(self, script: Script) -> Iterator[Finding]:
        every = self.settings["every"]
        for alarm in script.tree.all(cst.If):
            if reports_alarm(script, alarm) and script.loops.each_step(alarm.test):
                message = (
                    f"`{script.tree.brief(alarm.test)}` waits for the device in every step, only "
                    f"to print a warning; check every {every}th step"
                )
                notes = script.loops.repetition.notes_on_callers(alarm)
                yield Finding(self.code, script.span(alarm.test), message, None, notes)

    def _timers(self, script: Script) -> Iterator[Finding]:
        for calls in _timers(script):
            message = (
                f"`{script.code(calls[0])}` waits for the device in every step to time it; record "
                "events (`torch.cuda.Event(enable_timing=True)`) and read them at the log line"
            )
            notes = tuple(Note(script.span(call), _WAITS) for call in calls[1:])
            yield Finding(self.code, script.span(calls[0]), message, None, notes, "low")


def _staying(script: Script, guard: StepGuard) -> cst.CSTNode | None:
    """Return another read of each pass of the same loop."""
    around = guard.loop.node if guard.loop is not None else script.scopes.function(guard.holder)
    for reading in script.readings.within(around.body) if around is not None else ():
        if script.loops.frequency(reading.node) is not Frequency.EVERY_PASS:
            continue
        if not script.tree.inside(reading.node, guard.holder) and reading.node is not guard.asked:
            return reading.node
    return None


def _fix(script: Script, guard: StepGuard, every: int) -> Fix | None:
    """Return a fix that asks only now and then, None if the passes are not counted."""
    counter = script.loops.frequencies.counter(guard.loop.node) if guard.loop is not None else None
    test = guard.holder.test
    if counter is None or not script.tree.inside(guard.asked, guard.holder):
        return None
    if isinstance(guard.holder, cst.Assert) or isinstance(test, cst.BooleanOperation):
        return None
    edits = script.edits.insert(script.span(test).start, f"{counter} % {every} == 0 and ")
    because = _LATE.format(every=every)
    return Fix.unsafe(f"Ask every {every}th step", edits, because=because)


# -- timers -----------------------------------------------------------------------


def _timers(script: Script) -> Iterator[Sequence[cst.Call]]:
    """Yield the calls that wait beside a clock in each pass of one training loop."""
    found: dict[int, list[cst.Call]] = {}
    for site in script.calls.of(*_SYNCS):
        loop = script.loops.batch_loop(site.node)
        if loop is None or loop.role is not Role.TRAIN_BATCH:
            continue
        if script.loops.measuring.is_measured(site.node):
            continue
        timed = script.loops.frequency(site.node) is Frequency.RARE
        if timed and script.loops.frequency(site.node, within=loop.node) is Frequency.EVERY_PASS:
            found.setdefault(id(loop.node), []).append(site.node)
    yield from found.values()
