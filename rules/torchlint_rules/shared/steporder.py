"""Schedulers that are stepped before their optimizer, and fixes that reorder the two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    CALLERS,
    Act,
    Edits,
    Frequency,
    Loop,
    Role,
    SchedulerStep,
    Script,
    Update,
)

_RATES: Final = frozenset("lr get_lr get_last_lr param_groups".split())
_STABLE: Final = frozenset({"builtins.isinstance", "builtins.hasattr"})
_COUNTERS: Final = frozenset("epoch step i it iteration n_iter global_step".split())
_SAVES: Final = ("state_dict", "save", "checkpoint")


class Early(NamedTuple):
    """A step of a scheduler, and the steps of its optimizer that follow in the same iteration."""

    region: cst.BaseSuite
    updates: tuple[Update, ...]
    unit: str


def early(script: Script, step: SchedulerStep) -> Early | None:
    """Return the steps after a scheduler's step if it precedes all steps of its optimizer."""
    for region, unit in _regions(script, step.call):
        updates = sure_steps(script, step, region)
        if updates is None:
            return None
        if not updates:
            if _advances(script, step, region):
                return None
            continue
        place = script.tree.order(step.call)
        shared = _shared(script, step.call, updates, region)
        if is_now_and_then(script, step.call, shared, may_start=True):
            return None
        if any(script.tree.order(each.at) < place for each in updates):
            return None
        return None if _stepped_before(script, step, region) else Early(shared, updates, unit)
    return None


def _advances(script: Script, step: SchedulerStep, region: cst.BaseSuite) -> bool:
    """Return whether a loop only takes one scheduler through a part of its schedule."""
    loop = script.tree.parent(region)
    if not isinstance(loop, cst.For):
        return False
    drawn = {name.value for name in script.tree.within(loop.target, cst.Name)}
    return drawn.isdisjoint(name.value for name in script.tree.within(step.scheduler, cst.Name))


def _shared(
    script: Script, call: cst.Call, updates: Sequence[Update], region: cst.BaseSuite
) -> cst.BaseSuite:
    """Return the innermost block around a scheduler's step that also holds its optimizer's."""
    for outer in script.tree.ancestors(call):
        if outer is region:
            break
        if isinstance(outer, cst.IndentedBlock) and isinstance(script.tree.parent(outer), cst.If):
            if all(script.tree.inside(each.at, outer) for each in updates):
                return outer
    return region


def _regions(script: Script, call: cst.Call) -> Iterator[tuple[cst.BaseSuite, str]]:
    """Yield the repeated code around a call: loops, then its function if loops call it."""
    for loop in script.loops.around(call):
        yield loop.node.body, "step" if _counts_steps(script, loop) else "epoch"
    function = script.scopes.function(call)
    if function is not None and script.loops.is_repeated(function):
        each_step = script.loops.frequency(call) is Frequency.EVERY_PASS
        yield function.body, "step" if each_step else "epoch"


def _counts_steps(script: Script, loop: Loop) -> bool:
    if loop.role is not Role.TRAIN_BATCH:
        return False
    return not isinstance(loop.node, cst.For) or "epoch" not in script.code(loop.node.target)


def sure_steps(
    script: Script, step: SchedulerStep, region: cst.CSTNode
) -> tuple[Update, ...] | None:
    """Return the steps of a scheduler's optimizer in a region, None if one may be another's."""
    found = [each for each in script.optimizers.updates.within(region) if each.act is Act.STEP]
    if any(each.call is step.call for each in found):
        return None
    known = [(each, _is_own(script, step, each)) for each in found]
    maybe = [each for each, own in known if own is None]
    if maybe:
        stepped = {script.code(each.optimizer) if each.optimizer else "" for each in found}
        if len(stepped) > 1 or "" in stepped:
            return None
    return tuple(each for each, own in known if own is not False)


def _is_own(script: Script, step: SchedulerStep, update: Update) -> bool | None:
    answers = {
        script.optimizers.updates.same_optimizer(each.optimizer, update.optimizer)
        for each in step.made
    }
    if True in answers:
        return True
    return False if answers == {False} else None


def _holds_at_first(test: cst.BaseExpression) -> bool:
    """Return whether a test holds while a counter is small (`if epoch < warmup:`)."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    counted = isinstance(test.left, cst.Name) and test.left.value in _COUNTERS
    return counted and isinstance(test.comparisons[0].operator, cst.LessThan | cst.LessThanEqual)


def is_now_and_then(
    script: Script, node: cst.CSTNode, region: cst.CSTNode, *, may_start: bool = False
) -> bool:
    """Return whether a node is behind a test whose result may change with the iteration.

    With `may_start`, a test does not count that holds in the first iterations.
    """
    for child, at in script.tree.outward(node):
        if at is region:
            return False
        if isinstance(at, cst.If) and child is not at.test and _changes(script, at.test, region):
            if not may_start or child is not at.body or not _holds_at_first(at.test):
                return True
        if isinstance(at, (cst.ExceptHandler, cst.While, cst.IfExp)):
            return True
    return False


def _changes(script: Script, test: cst.BaseExpression, region: cst.CSTNode) -> bool:
    if any(True for _ in script.tree.within(test, cst.SimpleString)):
        # `if phase == "train":` goes by what a pass is for, not by how many there were.
        return False
    if any(True for _ in script.tree.within(test, cst.BinaryOperation)):
        return True
    if any(script.name(call.func) not in _STABLE for call in script.tree.within(test, cst.Call)):
        return True
    parts = script.tree.within(test, cst.Attribute)
    kept = (binding for part in parts for binding in script.functions.bindings(part))
    if any(script.loops.is_in_loop(binding.node) for binding in kept):
        return True
    loop = script.tree.parent(region)
    for name in script.tree.within(test, cst.Name):
        for binding in () if script.functions.is_self(name) else script.scopes.reaching(name):
            if binding.node is loop or script.tree.inside(binding.node, region):
                return True
            if isinstance(binding.node, cst.Param) and name.value in _COUNTERS:
                return True
    return False


def _stepped_before(
    script: Script, step: SchedulerStep, place: cst.CSTNode, depth: int = CALLERS
) -> bool:
    """Return whether the optimizer has stepped before the loop, as torch requires."""
    start = script.tree.order(place)
    if any(
        each.act is Act.STEP
        and script.tree.order(each.at) < start
        and _is_own(script, step, each) is not False
        for each in script.optimizers.updates.within(script.scopes.region(place))
    ):
        return True
    function = script.scopes.function(place)
    calls = script.functions.callers(function) if function is not None and depth else ()
    return any(_stepped_before(script, step, call, depth - 1) for call in calls)


# -- the fix --------------------------------------------------------------------------


def line_of(script: Script, call: cst.Call) -> cst.SimpleStatementLine | None:
    """Return the line that consists of a call, None if it shares the line."""
    line = script.tree.statement(call)
    if not isinstance(line, cst.SimpleStatementLine) or not script.edits.stands_alone(line):
        return None
    small = line.body[0]
    return line if isinstance(small, cst.Expr) and small.value is call else None


def put_behind(
    script: Script, step: SchedulerStep, found: Early, text: str | None = None
) -> Edits | None:
    """Move a scheduler's step after the steps of its optimizer, None if that may be wrong."""
    block = found.region
    if not isinstance(block, cst.IndentedBlock):
        return None
    statement = whole(script, step.call, block)
    if statement is None or _skips(script, statement, block):
        return None
    last = max(
        next(at for at, line in enumerate(block.body) if script.tree.inside(each.at, line))
        for each in found.updates
    )
    rest = block.body[last + 1 :]
    if rest and _updates_scaler(script, rest[0]):
        last, rest = last + 1, rest[1:]
    place = block.body[last]
    if rest and not _RATES.isdisjoint(_words(script, rest)) and not _saves(script, rest):
        place = rest[-1]
    if not script.edits.stands_alone(place) or _leaves(place):
        return None
    return script.edits.moved(statement, place, behind=True, text=text)


def whole(
    script: Script, call: cst.Call, block: cst.IndentedBlock
) -> cst.SimpleStatementLine | cst.If | None:
    """Return the statement of a block that consists of a call: its line, or an `if`."""
    line = line_of(script, call)
    if line is None or script.tree.parent(line) is block:
        return line
    suite = script.tree.parent(line)
    outer = script.tree.parent(suite)
    alone = isinstance(suite, cst.IndentedBlock) and len(suite.body) == 1
    if isinstance(outer, cst.If) and outer.orelse is None and alone:
        return outer if script.tree.parent(outer) is block else None
    return None


def _skips(script: Script, statement: cst.CSTNode, block: cst.IndentedBlock) -> bool:
    """Return whether an iteration may end before the rest of the block runs."""
    start = script.tree.order(statement)
    if isinstance(script.tree.parent(block), cst.FunctionDef):
        return any(
            script.tree.order(each) > start for each in script.tree.within(block, cst.Return)
        )
    for each in script.tree.within(block, cst.Continue):
        loop = script.tree.parent(each)
        while loop is not None and not isinstance(loop, (cst.For, cst.While)):
            loop = script.tree.parent(loop)
        if loop is not None and loop.body is block:
            return True
    return False


def _updates_scaler(script: Script, line: cst.BaseStatement) -> bool:
    return any(
        script.calls.at(call).method == "update" and not call.args
        for call in script.tree.within(line, cst.Call)
    )


def _leaves(line: cst.BaseStatement) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and isinstance(
        line.body[-1], (cst.Break, cst.Continue, cst.Return, cst.Raise)
    )


def _words(script: Script, lines: Sequence[cst.BaseStatement]) -> Iterator[str]:
    for line in lines:
        yield from (name.value for name in script.tree.within(line, cst.Name))
        yield from (each.attr.value for each in script.tree.within(line, cst.Attribute))


def _saves(script: Script, lines: Sequence[cst.BaseStatement]) -> bool:
    return any(part in word.lower() for word in _words(script, lines) for part in _SAVES)
