"""Gates: the fix that puts the log lines of a loop behind a test for every n-th step."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from torchlint.api import Binding, Edit, Fix, How, Loop, Script
from torchlint_rules.shared.deferrable import deferrable_sums
from torchlint_rules.shared.loglines import LogLine
from torchlint_rules.shared.passwaits import staying

Statements = Sequence[cst.CSTNode]


class Gates:
    """Puts all log lines of a loop behind a test, and the sums beside them on the device.

    There is no fix if each pass goes on waiting: records would be lost for nothing.
    """

    def __init__(self, script: Script, lines: Sequence[LogLine], every: int) -> None:
        self.script = script
        self.loop = lines[0].loop
        self.every = every
        blocks = list(_blocks(script, lines))
        gone = [*(each.line for each in lines), *(line for block in blocks for line in block)]
        sums = list(deferrable_sums(script, self.loop, gone))
        fixes = [each.fix for each in sums if each.fix is not None]
        gone += (read.node for each in sums for read in each.found if each.fix is not None)
        left = staying(script, self.loop, gone)
        gated = {id(line) for block in blocks for line in block}
        whole = all(id(script.tree.parent(each.line)) in gated for each in lines)
        self.fix = self._fix(blocks, fixes) if whole and not left else None
        places = {id(each.shown.place) for each in lines}
        if self.fix is None:
            left = [*left, *(read.node for each in sums for read in each.found)]
        self.staying = [each for each in dict.fromkeys(left) if id(each) not in places]
        """What each pass waits for beside its log lines and the sums that the fix defers."""

    def _fix(self, blocks: Sequence[Statements], sums: Sequence[Fix]) -> Fix | None:
        """Return the fix that makes the gates of all blocks and defers the sums."""
        gate = _gate(self.script, self.loop, self.every)
        if gate is None:
            return None
        edits = dict.fromkeys(edit for each in sums for edit in each.edits)
        made: list[Edit] = []
        for block in blocks:
            start, end = self.script.span(block[0]).start, self.script.span(block[-1]).end
            inside = [each for each in edits if start <= each.span.start and each.span.end <= end]
            made += self.script.edits.wrap(block, f"if {gate}:", tuple(inside))
            for each in inside:
                del edits[each]
        gated = Fix.unsafe(
            f"Log every {self.every}th step", tuple(made), because="fewer records are written"
        )
        return Fix.of_several([gated, *(replace(each, edits=tuple(edits)) for each in sums)])


def _gate(script: Script, loop: Loop, every: int) -> str | None:
    """Return the test for every n-th pass and the last one, None if the passes are not counted."""
    counter = script.loops.frequencies.counter(loop.node)
    last = script.loaders.last_pass.test(loop)
    return f"{counter} % {every} == 0" + (f" or {last}" if last else "") if counter else None


def _blocks(script: Script, lines: Sequence[LogLine]) -> Iterator[Statements]:
    """Yield the neighbouring lines that can go behind one test, with the reads that they show."""
    loop = lines[0].loop
    found = {
        id(each.line)
        for each in lines
        if script.tree.inside(each.line, loop.node)
        and script.tree.inside(each.shown.place, loop.node)
    }
    holders = [script.tree.parent(each.line) for each in lines if id(each.line) in found]
    blocks = {id(block): block for block in map(script.tree.parent, filter(None, holders))}
    for block in blocks.values():
        for run in _runs(block, found) if isinstance(block, cst.IndentedBlock) else ():
            moved = _with_readings(script, run, loop)
            if moved is None or any(_draws(script, line) or _counts(script, line) for line in run):
                continue
            if not _is_periodic(script, run[0]):
                yield moved


def _runs(block: cst.IndentedBlock, found: set[int]) -> Iterator[list[cst.SimpleStatementLine]]:
    """Yield the consecutive logging statements of a block."""
    run: list[cst.SimpleStatementLine] = []
    for line in block.body:
        if isinstance(line, cst.SimpleStatementLine) and found.issuperset(map(id, line.body)):
            run.append(line)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _is_periodic(script: Script, line: cst.CSTNode) -> bool:
    """Return whether a line, or what it calls, runs in every k-th pass: periods may never meet."""
    called = script.functions.reached(line)[1:]
    inside = (each.test for body in called for each in script.tree.within(body, cst.If))
    return any(
        isinstance(each.operator, cst.Modulo)
        for test in (*script.tree.tests_around(line), *inside)
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


def _counts(script: Script, line: cst.CSTNode) -> bool:
    """Return whether a line calls a function in view that adds up something of every pass."""
    bodies = script.functions.reached(line)[1:]
    added = (each.target for body in bodies for each in script.tree.within(body, cst.AugAssign))
    return any(_outlives_call(script, target) for target in added)


def _outlives_call(script: Script, target: cst.BaseExpression) -> bool:
    """Return whether a target is no local variable of the function around it."""
    if not isinstance(target, cst.Name):
        return True
    scope = script.scopes.lookup(target.value, script.scopes.scope(target))
    return scope is None or scope.function is not script.scopes.function(target)


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
