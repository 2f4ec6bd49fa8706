"""TL207: logging a number every step forces a GPU sync."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import libcst as cst

from torchlint.api import Finding, Note, Role, Rule, Script
from torchlint_rules.shared.loglines import LogLine, log_lines, told_by
from torchlint_rules.shared.stepguards import step_guards
from torchlint_rules.shared.wording import listed
from torchlint_rules.tl207_logging_every_step.loggates import Gates
from torchlint_rules.tl207_logging_every_step.logintervals import intervals

_STAYS: Final = "every step waits here as well"


class LoggingEveryStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the lines of every batch loop that log a tensor's value in each iteration."""
        if not script.program.devices.can_use_accelerator:
            return
        every = self.settings["every"]
        yield from intervals(script, self.code, every)
        if not (script.readings.are_in_file or _may_log(script)):
            return
        lines: dict[int, list[LogLine]] = {}
        for each in script.once(log_lines):
            lines.setdefault(id(each.loop.node), []).append(each)
        for found in filter(partial(_is_told_here, script), lines.values()):
            gates = Gates(script, found, every)
            for wait in _waits(script, found):
                first = wait[0]
                if _has_waited(script, first, gates.staying):
                    continue
                named = list(dict.fromkeys(f"`{script.code(each.call.func)}`" for each in wait))
                message = (
                    f"{listed(named)} need{'' if named[1:] else 's'} `{first.shown.text}` in "
                    f"every step, which forces a GPU sync; log every {every} steps"
                )
                place, notes = _place(script, wait)
                notes += tuple(Note(script.span(each), _STAYS) for each in gates.staying)
                yield Finding(self.code, script.span(place), message, gates.fix, notes)


def _may_log(script: Script) -> bool:
    """Return whether a line of the file itself shows or records something."""
    calls = (each.value for each in script.tree.own(cst.Expr) if isinstance(each.value, cst.Call))
    return any(told_by(script, call, Role.TRAIN_BATCH) for call in calls)


def _is_told_here(script: Script, lines: Sequence[LogLine]) -> bool:
    """Return whether some lines of a loop, or what they show, stand in the file itself."""
    places = (place for each in lines for place in (each.line, each.shown.place))
    return any(map(script.tree.is_own, places))


def _waits(script: Script, lines: Sequence[LogLine]) -> Iterator[list[LogLine]]:
    """Yield the lines that share a wait: nothing is given to the device in between."""
    wait: list[LogLine] = []
    for each in sorted(lines, key=lambda line: (id(line.loop), script.tree.order(line.line))):
        if wait and (not _shares_wait(script, wait[-1], each)):
            yield wait
            wait = []
        wait.append(each)
    if wait:
        yield wait


def _has_waited(script: Script, line: LogLine, staying: Sequence[cst.CSTNode]) -> bool:
    """Return whether the pass has waited right before, to choose what it does."""
    place, loop = line.shown.place, line.loop.node
    return any(
        script.tree.order(node) < script.tree.order(place)
        and script.scopes.home(node) is script.scopes.home(place)
        and _chooses(script, node)
        and not script.readings.works_between(node, place, loop)
        for node in staying
    )


def _chooses(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a test reads a value that a training needs, which no check of a step does."""
    tests = (each for part, each in script.tree.outward(node) if getattr(each, "test", 0) is part)
    test = next((each for each in tests if isinstance(each, (cst.If, cst.While))), None)
    return test is not None and all(each.holder is not test for each in step_guards(script))


def _shares_wait(script: Script, first: LogLine, second: LogLine) -> bool:
    """Return whether a line of the same loop finds the device idle after another."""
    if second.loop is not first.loop:
        return False
    if script.scopes.home(first.line) is not script.scopes.home(second.line):
        return second.shown.place is first.shown.place
    return not script.readings.works_between(first.line, second.line, first.loop.node)


def _place(script: Script, wait: Sequence[LogLine]) -> tuple[cst.CSTNode, tuple[Note, ...]]:
    """Return where a wait is reported, and notes at the other lines that show its value.

    It is reported at the read if several lines show what one reads in the file itself.
    """
    place = wait[0].shown.place
    away = not script.tree.is_own(place)
    if len(wait) == 1 or away or any(script.tree.inside(place, each.line) for each in wait):
        notes = (Note(script.span(each.line), "shown here as well") for each in wait[1:])
        return wait[0].line, tuple(notes)
    return place, tuple(Note(script.span(each.line), "shown here") for each in wait)
