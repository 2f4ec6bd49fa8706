"""TL505: a scheduler that is stepped at the wrong place or interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from torchlint.api import Edit, Finding, Fix, Kind, Rule, SchedulerStep, Script, Span
from torchlint_rules.shared.steporder import Early, early, put_behind
from torchlint_rules.tl505_misplaced_scheduler_step.schedulerapi import (
    is_only_shown,
    misuse,
    sets_rates,
)
from torchlint_rules.tl505_misplaced_scheduler_step.stepinterval import mismatch

_EARLIER: Final = "every learning rate comes one {} later than now"
_OTHER_PACE: Final = "the learning rate follows another curve from the first epoch on"


class MisplacedSchedulerStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag every misplaced step, and uses of removed arguments and methods."""
        for made in script.optimizers.schedulers.made:
            yield from self._verbose(script, made.call, made.name)
        for site in script.calls.of_methods("get_lr"):
            yield from self._rate(script, site.node)
        for line in script.functions.uncalled("step"):
            if script.kind(line.value) is Kind.SCHEDULER and script.tree.is_own(line):
                yield self._uncalled(script, line)
        for step in script.optimizers.schedulers.steps:
            if script.optimizers.schedulers.is_set_by_hand(step.scheduler):
                continue
            found = misuse(script, step) or _disorder(script, step)
            if found is not None:
                message, fix = found
                fix = fix if script.program.devices.framework == "none" else None
                yield Finding(self.code, script.span(step.call), message, fix)

    def _uncalled(self, script: Script, line: cst.Attribute) -> Finding:
        """Return the finding for a line that names the step of a scheduler without calling it."""
        span, what = script.span(line), script.code(line)
        message = f"`{what}` without parentheses calls nothing: the learning rate never changes"
        edits = (Edit(Span(span.end, span.end), "()"),)
        fix = Fix.unsafe("Call it", edits, because=_OTHER_PACE)
        return Finding(self.code, span, message, fix)

    def _verbose(self, script: Script, call: cst.Call, name: str) -> Iterator[Finding]:
        arg = script.calls.at(call).given("verbose")
        if arg is None or not script.program.target.has((2, 2)):
            return
        fate = "was removed in torch 2.7: this raises TypeError"
        if not script.program.target.has((2, 7)):
            fate = "does nothing since torch 2.2, and from 2.7 on raises TypeError"
        message = f"`verbose=` of `{name}` {fate}; print `get_last_lr()` where you want the rate"
        plain = isinstance(arg.value, (cst.Name, cst.Attribute, cst.Integer))
        fix = None
        if plain:
            fix = Fix.exact("Remove `verbose`", script.edits.without_argument(call, arg))
        yield Finding(self.code, script.span(arg), message, fix)

    def _rate(self, script: Script, call: cst.Call) -> Iterator[Finding]:
        func = call.func
        if not isinstance(func, cst.Attribute) or call.args:
            return
        made = script.optimizers.schedulers.of(func.value)
        if script.kind(func.value) is not Kind.SCHEDULER or not made:
            return
        if not all(each.in_sight and each.name for each in made) or sets_rates(script, call):
            return
        name = script.code(func.value)
        message = (
            f"`{name}.get_lr()` computes a next rate from the present one, and torch warns of it: "
            "`get_last_lr()` is the rate in use"
        )
        edits = script.edits.replace(func.attr, "get_last_lr")
        title = "Ask for the rate in use"
        because = "the value differs where the schedule multiplies, and more than a print reads it"
        shown = is_only_shown(script, call)
        fix = Fix.exact(title, edits) if shown else Fix.unsafe(title, edits, because=because)
        yield Finding(self.code, script.span(call), message, fix)


# -- place and beat ------------------------------------------------------------------------


def _disorder(script: Script, step: SchedulerStep) -> tuple[str, Fix | None] | None:
    if not step.names & {"ReduceLROnPlateau"} and not step.call.args:
        found = early(script, step)
        if found is not None:
            return _early_message(script, step, found), _early_fix(script, step, found)
    beat = mismatch(script, step) if not step.call.args else None
    if beat is None:
        return None
    message, edits, title = beat
    return message, Fix.unsafe(title, edits, because=_OTHER_PACE) if edits else None


def _early_message(script: Script, step: SchedulerStep, found: Early) -> str:
    update = found.updates[0]
    own = f"`{script.code(update.call.func)}()`"
    if not update.in_sight and update.optimizer is not None:
        own = f"`{script.code(update.call.func)}` steps `{script.code(update.optimizer)}`"
    return (
        f"`{script.code(step.call)}` comes before {own}: the first value of the schedule is "
        f"skipped, and every rate comes one {found.unit} early; step it after the optimizer"
    )


def _early_fix(script: Script, step: SchedulerStep, found: Early) -> Fix | None:
    if not step.made or not all(each.in_sight for each in step.made):
        return None
    edits = put_behind(script, step, found)
    if edits is None:
        return None
    because = _EARLIER.format(found.unit)
    return Fix.unsafe("Step the scheduler after the optimizer", edits, because=because)
