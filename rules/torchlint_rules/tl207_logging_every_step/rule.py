"""TL207: logging a number every step forces a GPU sync."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Binding,
    Finding,
    Fix,
    Frequency,
    How,
    Kind,
    Loop,
    Note,
    Role,
    Rule,
    Script,
)
from torchlint_rules.tl207_logging_every_step.loggedvalues import Shown, shown
from torchlint_rules.tl207_logging_every_step.logintervals import intervals

_METHODS: Final = frozenset(
    (
        "set_postfix set_postfix_str set_description set_description_str add_scalar add_scalars "
        "add_histogram add_image info warning log_metric log_metrics scalar_summary"
    ).split()
)
_LOGGERS: Final = frozenset(
    "wandb run logger log experiment mlflow writer accelerator fabric tracker neptune".split()
)
_RECORDERS: Final = frozenset("log logs logger tracker".split())
_UPKEEP: Final = frozenset(
    "save close finish init watch flush add_argument setLevel addHandler step start join".split()
)
"""Methods of a recorder that record nothing."""
_PLOTTERS: Final = ("vis", "viz", "visdom")
_FUNCTIONS: Final = ("builtins.print", "sys.stdout.write", "tqdm.tqdm.write", "progress_bar")
_TENSORS: Final = (Kind.TENSOR, Kind.LOSS)


class LoggingEveryStep(Rule):
    def check(self, script: Script) -> Iterator[Finding]:
        """Flag the lines of every batch loop that log a tensor's value in each iteration."""
        if not script.program.devices.can_use_accelerator:
            return
        yield from intervals(script, self.code, self.settings["every"])
        lines = {id(each.line): each for each in _lines(script)}
        every = self.settings["every"]
        loops = {id(each.loop.node): each.loop for each in lines.values()}
        staying = {key: _staying(script, lines, loop) for key, loop in loops.items()}
        freed = {
            key: one
            for key, one in lines.items()
            if staying[id(one.loop.node)] is None
            and script.tree.inside(one.line, one.loop.node)
            and script.tree.inside(one.shown.place, one.loop.node)
        }
        fixes = _fixes(script, freed, every)
        for wait in _waits(script, list(lines.values())):
            first = wait[0]
            named = list(dict.fromkeys(f"`{script.code(each.call.func)}`" for each in wait))
            message = (
                f"{_joined(named)} need{'' if named[1:] else 's'} `{first.shown.text}` in "
                f"every step, which forces a GPU sync; log every {every} steps"
            )
            place, notes = _place(script, wait)
            stays = staying[id(first.loop.node)]
            if stays is not None:
                notes += (Note(script.span(stays), "every step waits here as well"),)
            fix = _together([fixes.get(id(each.line)) for each in wait])
            yield Finding(self.code, script.span(place), message, fix, notes)


class _Line(NamedTuple):
    """A line that logs a value in every pass of a loop."""

    line: cst.Expr
    call: cst.Call
    loop: Loop
    shown: Shown


def _lines(script: Script) -> Iterator[_Line]:
    """Yield the lines of batch loops that log a tensor's value in each iteration."""
    for loop in script.loops.of(Role.TRAIN_BATCH, Role.EVAL_BATCH):
        if script.loops.is_round(loop):
            continue
        found = [
            each
            for region in script.readings.waits.code_of_pass(loop)
            for each in _lines_of(script, region.body, loop)
        ]
        yield from (each for each in found if not _logs_inside(script, each, found))


def _lines_of(script: Script, body: cst.CSTNode, loop: Loop) -> Iterator[_Line]:
    """Yield the lines of a loop, or of a function that it calls, that log a tensor's value."""
    for line in script.tree.within(body, cst.Expr):
        if not isinstance(line.value, cst.Call) or not _logs(script, line.value, loop):
            continue
        if not _runs_each_pass(script, line, loop):
            continue
        value = shown(script, line.value, loop)
        if value is not None and not _reports_episode(script, line, loop):
            yield _Line(line, line.value, loop, value)


def _runs_each_pass(script: Script, line: cst.Expr, loop: Loop) -> bool:
    """Return whether a line of a loop, or of a function that it calls, runs in every pass."""
    nearest = script.loops.batch_loop(line)
    function = script.scopes.function(line)
    if function is not None and not script.tree.inside(line, loop.node):
        return nearest is None and script.loops.frequency(line, function) is Frequency.EVERY_PASS
    if nearest is not loop:
        return False
    every = script.loops.frequency(line) is Frequency.EVERY_PASS
    return every or script.loops.frequencies.of_one_process(line, loop.node)


def _waits(script: Script, lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Yield the lines that share a wait: nothing is given to the device in between."""
    wait: list[_Line] = []
    for each in sorted(lines, key=lambda line: (id(line.loop), script.tree.order(line.line))):
        if wait and (not _shares_wait(script, wait[-1], each)):
            yield wait
            wait = []
        wait.append(each)
    if wait:
        yield wait


def _shares_wait(script: Script, first: _Line, second: _Line) -> bool:
    """Return whether a line of the same loop finds the device idle after another."""
    if second.loop is not first.loop or script.scopes.home(first.line) is not script.scopes.home(
        second.line
    ):
        return False
    return not script.readings.works_between(first.line, second.line, first.loop.node)


def _place(script: Script, wait: Sequence[_Line]) -> tuple[cst.CSTNode, tuple[Note, ...]]:
    """Return where a wait is reported, and notes at the other lines that show its value.

    It is reported at the read if several lines show what one reads.
    """
    place = wait[0].shown.place
    if len(wait) == 1 or any(script.tree.inside(place, each.line) for each in wait):
        notes = (Note(script.span(each.line), "shown here as well") for each in wait[1:])
        return wait[0].line, tuple(notes)
    return place, tuple(Note(script.span(each.line), "shown here") for each in wait)


def _joined(words: Sequence[str]) -> str:
    """Return words as in `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _together(fixes: Sequence[Fix | None]) -> Fix | None:
    """Return one fix for all lines of a wait, None if one of them would go on waiting."""
    known = [each for each in fixes if each is not None]
    if len(known) < len(fixes):
        return None
    edits = dict.fromkeys(edit for each in known for edit in each.edits)
    return replace(known[0], edits=tuple(edits))


def _staying(script: Script, found: Mapping[int, _Line], loop: Loop) -> cst.CSTNode | None:
    """Return what forces a sync in each iteration of a loop, apart from logging."""
    shows: list[cst.CSTNode] = [each.line for each in found.values()]
    added = [each.node for each in script.readings.accumulations(loop.role, loop.node)]
    for reading in script.readings.within(loop.node.body):
        if script.loops.frequency(
            reading.node
        ) is not Frequency.EVERY_PASS or script.values.placement.on_host(reading.tensor):
            continue
        if any(script.tree.inside(reading.node, line) for line in (*shows, *added)):
            continue
        if script.readings.needed_in(loop.node, reading, shows):
            return reading.node
    return next(
        (
            site.node
            for site in script.calls.of("torch.cuda.synchronize")
            if script.tree.inside(site.node, loop.node)
            and script.loops.frequency(site.node) is Frequency.EVERY_PASS
        ),
        None,
    )


def _logs_inside(script: Script, logged: _Line, found: Sequence[_Line]) -> bool:
    """Return whether a line calls a function that logs in a line of its own, or now and then."""
    callee = script.functions.callee(logged.call)
    if callee is None or next(script.readings.within(logged.call), None) is not None:
        return False
    if any(script.tree.inside(each.line, callee.body) for each in found):
        return True
    calls = script.tree.within(callee.body, cst.Call)
    inner = [each for each in calls if _logs(script, each, logged.loop)]
    return bool(inner) and all(
        script.loops.frequency(each, callee) is Frequency.RARE for each in inner
    )


def _reports_episode(script: Script, line: cst.Expr, loop: Loop) -> bool:
    """Return whether a line reports a finished episode instead of every step."""
    return any(True for _ in script.tree.tests_around(line)) and any(
        "env" in script.code(call.func).lower()
        for call in script.tree.within(loop.node, cst.Call)
        if script.calls.at(call).method == "step"
    )


def _logs(script: Script, call: cst.Call, loop: Loop) -> bool:
    """Return whether a call shows or records its arguments."""
    func = call.func
    if (script.name(func) or script.code(func)) in _FUNCTIONS:
        return True
    if isinstance(func, cst.Name):
        return func.value == "progress_bar" or _hands_over_a_read(script, call, func)
    if not isinstance(func, cst.Attribute):
        return False
    said, method = func.value, func.attr.value
    if _hands_over_a_read(script, call, func.attr):
        return True
    if method in _METHODS:
        return script.kind(said) not in _TENSORS
    owner = said.attr if isinstance(said, cst.Attribute) else said
    word = owner.value.lower() if isinstance(owner, cst.Name) else ""
    if method == "line":
        return word in _PLOTTERS
    if method in ("write", "writerow"):
        return loop.role is Role.TRAIN_BATCH  # an evaluation writes its results
    if word in _RECORDERS and method not in _UPKEEP:
        return True
    return method in ("log", "print") and word in _LOGGERS


def _hands_over_a_read(script: Script, call: cst.Call, called: cst.Name) -> bool:
    """Return whether a function that is called after logging gets a value that was read."""
    if script.names.words(called.value)[:1] != ["log"] or called.value == "log":
        return False
    return any(True for _ in script.readings.within(call))


# -- the fix ----------------------------------------------------------------------


def _fixes(script: Script, found: Mapping[int, _Line], every: int) -> dict[int, Fix]:
    """Return the fix of each line by its identity; consecutive lines share theirs."""
    holders = [script.tree.parent(each.line) for each in found.values()]
    blocks = {id(block): block for block in map(script.tree.parent, filter(None, holders))}
    fixes: dict[int, Fix] = {}
    for block in blocks.values():
        for run in _runs(block, found) if isinstance(block, cst.IndentedBlock) else ():
            lines = [line.body[0] for line in run]
            fix = _fix(script, run, found[id(lines[0])].loop, every)
            if fix is not None:
                fixes.update(dict.fromkeys(map(id, lines), fix))
    return fixes


def _runs(
    block: cst.IndentedBlock, found: Mapping[int, object]
) -> Iterator[list[cst.SimpleStatementLine]]:
    """Yield the consecutive logging statements of a block."""
    run: list[cst.SimpleStatementLine] = []
    for line in block.body:
        if isinstance(line, cst.SimpleStatementLine) and _is_one_of(line, found):
            run.append(line)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _is_one_of(line: cst.SimpleStatementLine, found: Mapping[int, object]) -> bool:
    return len(line.body) == 1 and id(line.body[0]) in found


def _fix(script: Script, lines: Sequence[cst.CSTNode], loop: Loop, every: int) -> Fix | None:
    counter = script.loops.frequencies.counter(loop.node)
    moved = _with_readings(script, lines, loop)
    if counter is None or moved is None or any(_draws(script, line) for line in lines):
        return None
    if _is_periodic(script, lines[0]):
        return None
    last = script.loaders.last_pass.test(loop)
    gate = f"{counter} % {every} == 0" + (f" or {last}" if last else "")
    return Fix.unsafe(
        f"Log every {every}th step",
        script.edits.wrap(moved, f"if {gate}:"),
        because="fewer records are written",
    )


def _is_periodic(script: Script, line: cst.CSTNode) -> bool:
    """Return whether a line already runs in every k-th pass only: two periods may never meet."""
    return any(
        isinstance(each.operator, cst.Modulo)
        for test in script.tree.tests_around(line)
        for each in script.tree.within(
            script.values.value_of(test).node or test, cst.BinaryOperation
        )
    )


def _draws(script: Script, line: cst.CSTNode) -> bool:
    """Return whether each step overwrites the line of the previous one."""
    return any(
        arg.keyword is not None and arg.keyword.value == "end"
        for arg in script.tree.within(line, cst.Arg)
    ) or any("\\r" in text for text in _texts(script, line))


def _texts(script: Script, line: cst.CSTNode) -> Iterator[str]:
    yield from (each.value for each in script.tree.within(line, cst.SimpleString))
    yield from (each.value for each in script.tree.within(line, cst.FormattedStringText))


def _with_readings(
    script: Script, lines: Sequence[cst.CSTNode], loop: Loop
) -> Sequence[cst.CSTNode] | None:
    """Add the lines above that read the shown values, None if other lines need them."""
    readings = _readings(script, lines, loop)
    block = script.tree.parent(lines[0])
    if not isinstance(block, cst.IndentedBlock):
        return None
    order = script.tree.order
    at = bisect_left(block.body, order(lines[0]), key=order)
    above = block.body[max(at - len(readings), 0) : at]
    if {id(line) for line in above} != set(readings):
        return None
    moved = [*above, *lines]
    bound = list(readings.values())
    for name in (use for each in bound for use in script.tree.spelled(each.name)):
        if script.scopes.reads(name):
            inside = any(script.tree.inside(name, line) for line in moved)
            if not inside and not set(bound).isdisjoint(script.scopes.reaching(name)):
                return None
    return moved


def _readings(script: Script, lines: Sequence[cst.CSTNode], loop: Loop) -> dict[int, Binding]:
    """Return the statements that read a tensor for the names in some lines, by their identity."""
    return {
        id(script.tree.statement(binding.node)): binding
        for line in lines
        for name in script.tree.within(line, cst.Name)
        if script.scopes.reads(name)
        for binding in script.scopes.reaching(name)
        if binding.how is How.ASSIGN
        and binding.value is not None
        and script.tree.inside(binding.node, loop.node.body)
        and next(script.readings.within(binding.value), None) is not None
    }
