"""Values that every iteration reads on the host but that are only used now and then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import libcst as cst

from torchlint.api import Frequency, How, Loop, Reading, Role, Script


class OccasionalRead(NamedTuple):
    """A read in every pass whose value only a report now and then uses."""

    loop: Loop
    node: cst.Call
    message: str


def occasional_reads(script: Script, role: Role) -> Iterator[OccasionalRead]:
    """Yield the reads that only code behind `if step % n == 0:` uses."""
    for loop in script.loops.of(role):
        if script.loops.is_round(loop):
            continue
        for line in script.tree.within(loop.node.body, cst.Assign):
            found = next(script.readings.within(line.value), None)
            if (
                found is None
                or len(line.targets) != 1
                or script.loops.frequency(line) is not Frequency.EVERY_PASS
            ):
                continue
            if script.loops.batch_loop(line) is loop and _waits_in_vain(script, line, found, loop):
                named = script.code(line.targets[0].target)
                yield OccasionalRead(
                    loop,
                    found.node,
                    f"`{script.code(found.node)}` waits for the device in every step, but only an "
                    f"occasional report uses `{named}`: read it there",
                )


def _waits_in_vain(script: Script, line: cst.Assign, found: Reading, loop: Loop) -> bool:
    """Return whether all uses of a value in its loop are behind a test for every n-th step."""
    if not script.readings.is_arithmetic(line.value) or script.readings.needed_in(
        loop.node, found, [line]
    ):
        return False
    uses = _uses(script, line, loop)
    if not uses:
        return False
    return all(
        _is_periodic(script, use, line) and script.loops.frequency(use) is Frequency.RARE
        for use in uses
    )


def _uses(script: Script, line: cst.Assign, loop: Loop) -> list[cst.Name] | None:
    """Return the uses of a value in its loop, None if there may be others."""
    target = line.targets[0].target
    if isinstance(target, cst.Subscript) and _is_entry(target):
        return _uses_of_mapping(script, target.value, loop)
    if not isinstance(target, cst.Name):
        return None
    binding = script.scopes.stored(target)
    if binding is None or target.value in script.scopes.scope(target).outward:
        return None
    return list(script.scopes.uses(binding, loop.node.body))


def _is_entry(target: cst.Subscript) -> bool:
    index = target.slice[0].slice
    return isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString)


def _uses_of_mapping(
    script: Script, mapping: cst.BaseExpression, loop: Loop
) -> list[cst.Name] | None:
    if not isinstance(mapping, cst.Name):
        return None
    bindings = script.scopes.reaching(mapping)
    if not all(
        each.how is How.ASSIGN
        and script.tree.inside(each.node, loop.node)
        and isinstance(each.value, (cst.Dict, cst.Call))
        for each in bindings
    ):
        return None
    return [
        name
        for name in script.tree.within(loop.node.body, cst.Name)
        if name.value == mapping.value and script.scopes.reads(name) and not _stores(script, name)
    ]


def _stores(script: Script, name: cst.Name) -> bool:
    """Return whether a name is the container into which an entry is stored."""
    holder = script.tree.parent(name)
    return isinstance(holder, cst.Subscript) and isinstance(
        script.tree.parent(holder), cst.AssignTarget
    )


def _is_periodic(script: Script, use: cst.Name, line: cst.Assign) -> bool:
    """Return whether a use is behind a test for every n-th step that its line is not behind."""
    common = set(map(id, script.tree.tests_around(line)))
    return any(
        isinstance(each.operator, cst.Modulo)
        for test in script.tree.tests_around(use)
        if id(test) not in common
        for each in script.tree.within(test, cst.BinaryOperation)
    )
