"""Lines that log the value of a tensor in every pass of a loop: what TL207 reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    TENSORS,
    End,
    Form,
    Frequency,
    Kind,
    Loop,
    Role,
    Script,
    last_word,
    word_of,
)
from torchlint_rules.shared.alarms import BOUNDING, reports_alarm
from torchlint_rules.shared.loggedvalues import Shown, shown

_METHODS: Final = frozenset(
    "set_postfix set_postfix_str set_description set_description_str add_scalar add_scalars "
    "add_histogram add_image info warning log_metric log_metrics scalar_summary".split()
)
_LOGGERS: Final = frozenset(
    "wandb run logger log experiment mlflow writer accelerator fabric tracker neptune".split()
)
_RECORDERS: Final = frozenset("log logs logger tracker".split())
_UPKEEP: Final = frozenset(
    "save close finish init watch flush add_argument setLevel addHandler step start join".split()
)
"""Methods of a recorder that record nothing."""
COLLECTS: Final = ("update", "add", "append", "push", "accumulate")
"""Methods of a recorder that may only add a value to a mean, for which every value counts."""
_PLOTTERS: Final = ("vis", "viz", "visdom")
_FUNCTIONS: Final = ("builtins.print", "sys.stdout.write", "tqdm.tqdm.write", "progress_bar")


class LogLine(NamedTuple):
    """A line that logs a value in every pass of a loop."""

    line: cst.Expr
    call: cst.Call
    loop: Loop
    shown: Shown


def log_lines(script: Script) -> list[LogLine]:
    """Return the lines of batch loops that log a tensor's value in each iteration."""
    lines: list[LogLine] = []
    for loop in script.loops.of(Role.TRAIN_BATCH, Role.EVAL_BATCH):
        if script.loops.is_round(loop) or script.loops.measuring.is_measured(loop.node.body):
            continue
        found = [
            each
            for region in script.readings.waits.code_of_pass(loop.node)
            for each in _lines_of(script, region.body, loop)
        ]
        lines += (each for each in found if not _logs_inside(script, each, found))
    return lines


def _lines_of(script: Script, body: cst.CSTNode, loop: Loop) -> Iterator[LogLine]:
    """Yield the lines of a loop, or of a function that it calls, that log a tensor's value."""
    for line in script.tree.within(body, cst.Expr):
        told = told_by(script, line.value, loop.role) if isinstance(line.value, cst.Call) else ()
        if not told or not _runs_each_pass(script, line, loop):
            continue
        value = shown(script, told, loop)
        if value is None or _reports_episode(script, line, loop) or _is_returned(script, value):
            continue
        if not _is_past_bound(script, line, value):
            yield LogLine(line, cst.ensure_type(line.value, cst.Call), loop, value)


def _runs_each_pass(script: Script, line: cst.Expr, loop: Loop) -> bool:
    """Return whether a line of a loop, or of a function that it calls, runs in every pass."""
    nearest = script.loops.batch_loop(line)
    if any(isinstance(o, cst.If) and reports_alarm(script, o) for o in script.tree.ancestors(line)):
        return False
    function = script.scopes.function(line)
    if function is not None and not script.tree.inside(line, loop.node):
        return nearest is None and script.loops.frequencies.each_pass(line, function)
    return nearest is loop and script.loops.frequencies.each_pass(line, loop.node)


def _is_returned(script: Script, value: Shown) -> bool:
    """Return whether a function also returns the list that it read, to code that goes by it."""
    function = script.scopes.function(value.place)
    returned = script.functions.returns(function) if function is not None else ()
    return any(
        read is not None and read.node is value.place and read.form is not Form.NUMBER
        for read in map(script.readings.held_by, returned)
    )


def _is_past_bound(script: Script, line: cst.Expr, value: Shown) -> bool:
    """Return whether a line only tells that the value it shows is past a bound."""
    return any(
        isinstance(test, cst.Comparison)
        and isinstance(test.comparisons[0].operator, BOUNDING)
        and value.text in map(script.code, (test.left, test.comparisons[0].comparator))
        for test in script.tree.tests_around(line)
    )


def _logs_inside(script: Script, logged: LogLine, found: Sequence[LogLine]) -> bool:
    """Return whether a line calls a function that logs in a line of its own, or now and then."""
    callee = script.functions.callee(logged.call)
    if callee is None:
        return False
    # what it shows, or its function reads, is kept for a mean: every value counts
    places = [logged.shown.place, *script.functions.reached(callee.body)]
    waits = script.readings.waits.of(logged.loop)
    kept = (each.reading.node for each in waits if End.KEPT in each.ends)
    if any(script.tree.inside(node, place) for node in kept for place in places):
        return True
    if next(script.readings.within(logged.call), None) is not None or any(
        script.tree.inside(logged.shown.place, arg) and script.readings.is_text(arg.value)
        for arg in logged.call.args
    ):
        return False
    if any(script.tree.inside(each.line, callee.body) for each in found):
        return True
    calls = script.tree.within(callee.body, cst.Call)
    inner = [each for each in calls if told_by(script, each, logged.loop.role)]
    return bool(inner) and all(
        script.loops.frequency(each, callee) is Frequency.RARE for each in inner
    )


def _reports_episode(script: Script, line: cst.Expr, loop: Loop) -> bool:
    """Return whether a line reports a finished episode instead of every step."""
    tested = any(True for _ in script.tree.tests_around(line))
    return tested and script.loops.environments.are_stepped_in(loop.node)


def told_by(script: Script, call: cst.Call, role: Role) -> Sequence[cst.Arg]:
    """Return the arguments that a call shows or records, itself or in a function in view."""
    if _records(script, call, role) or _hands_over_a_read(script, call):
        return call.args
    callee = script.functions.callee(call)
    if callee is None:
        return ()
    return [arg for arg in call.args if _shows(script, call, callee, arg, role)]


def _records(script: Script, call: cst.Call, role: Role) -> bool:
    """Return whether a call is one of those that show or record their arguments."""
    func = call.func
    if (script.name(func) or script.code(func)) in _FUNCTIONS:
        return True
    if not isinstance(func, cst.Attribute):
        return isinstance(func, cst.Name) and func.value == "progress_bar"
    said, method = func.value, func.attr.value
    if method in _METHODS:
        return script.kind(said) not in TENSORS
    said = said.value if isinstance(said, cst.Subscript) else said
    word = last_word(said).lower()
    if method == "line":
        return word in _PLOTTERS
    if method in ("write", "writerow"):
        return role is Role.TRAIN_BATCH  # an evaluation writes its results
    if word in _RECORDERS and method not in (*_UPKEEP, *COLLECTS):
        gathers = script.kind(said) in (Kind.SEQUENCE, Kind.MAPPING)
        return not gathers and not _is_unseen(script, said)
    return method in ("log", "print") and (word in _LOGGERS or word.endswith("_run"))


def _is_unseen(script: Script, recorder: cst.BaseExpression) -> bool:
    """Return whether a recorder is of a class of the project that is not in view: it may gate."""
    return any(
        isinstance(each.value, cst.Call) and (script.name(each.value.func) or "").startswith(".")
        for each in script.functions.bindings(recorder)
    )


def _hands_over_a_read(script: Script, call: cst.Call) -> bool:
    """Return whether a function that is called after logging gets a value that was read."""
    word = word_of(call)
    if script.names.words(word)[:1] != ["log"] or word == "log":
        return False
    return any(True for _ in script.readings.within(call))


def _shows(
    script: Script, call: cst.Call, function: cst.FunctionDef, arg: cst.Arg, role: Role
) -> bool:
    """Return whether each call of a function shows or records what it is given, or its entries.

    A text is made before the call, however often the function shows it.
    """
    taken = script.functions.taken(call, function, arg.value)
    if taken is None:
        return False
    is_text = script.readings.is_text(arg.value)
    uses = list(script.scopes.uses(taken, function.body))
    for loop in script.functions.own(function.body, cst.For):
        if any(script.tree.inside(each, loop.iter) for each in uses):
            bound = map(script.scopes.stored, script.tree.within(loop.target, cst.Name))
            uses += [use for each in bound if each for use in script.scopes.uses(each, loop.body)]
    lines = (
        line for each in uses if isinstance(line := script.tree.smallest_statement(each), cst.Expr)
    )
    return any(
        isinstance(line.value, cst.Call)
        and _records(script, line.value, role)
        and (is_text or script.loops.frequencies.each_pass(line, function))
        for line in lines
    )
