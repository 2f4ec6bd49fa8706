"""What compiled code is guarded on and changes in every step, so that torch compiles it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Binding,
    Frame,
    Invariance,
    Kind,
    Role,
    Script,
    method_of,
    receiver_of,
)

_ADDING: Final = ("append", "extend", "insert")
_EMPTYING: Final = ("clear", "pop", "popleft")
_SIZES: Final = ("size", "numel", "dim")
_ANY_NUMBER: Final = "allow_unspec_int_on_nn_module"
"""The setting that makes numbers of networks inputs of the graph."""


class Change(NamedTuple):
    """A place that changes what compiled code is guarded on.

    `start` is the line that sets a counter of a network to its first number.
    """

    node: cst.CSTNode
    name: str
    kind: str
    frame: Frame
    start: cst.Assign | None = None


def changes(script: Script) -> Iterator[Change]:
    """Yield the counters, the growing lists and the settings that compile code in every step."""
    seen: set[cst.CSTNode] = set()
    for frame in script.modules.compiled.frames:
        if frame.function in seen:
            continue
        seen.add(frame.function)
        for found in _inside(script, frame):
            if script.modules.compiled.is_taken(
                found.node
            ) and not script.modules.compiled.is_left_out(found.node):
                yield found
    if seen:
        yield from _set_by_loops(script)


def _inside(script: Script, frame: Frame) -> Iterator[Change]:
    """Yield what a function that runs compiled changes itself."""
    for line in script.functions.own(frame.function, cst.AugAssign):
        if isinstance(line.operator, (cst.AddAssign, cst.SubtractAssign)):
            yield from _changed(script, frame, line, line.target, line.value)
    for assign in script.functions.own(frame.function, cst.Assign):
        target, value = assign.targets[0].target, assign.value
        if isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
            if script.code(value.left) == script.code(target):
                yield from _changed(script, frame, assign, target, value.right)
    for call in script.functions.own(frame.function, cst.Call):
        held = receiver_of(call, *_ADDING) if call.args else None
        if held is not None and _is_list(script, held) and not _is_emptied(script, held):
            yield Change(call, script.code(held), "list", frame)


def _changed(
    script: Script,
    frame: Frame,
    line: cst.Assign | cst.AugAssign,
    target: cst.BaseExpression,
    value: cst.BaseExpression,
) -> Iterator[Change]:
    """Yield the change that a line makes which adds to what it sets."""
    name = script.code(target)
    if _is_list(script, target):
        if not _is_emptied(script, target):
            yield Change(line, name, "list", frame)
    elif _is_count(script, value) and not script.whole.tree.mentions(_ANY_NUMBER):
        starts = _starts(script, target)
        if starts and all(isinstance(each.value, cst.Integer) for each in starts):
            node = starts[0].node
            start = node if isinstance(node, cst.Assign) and len(starts) == 1 else None
            yield Change(line, name, "counter", frame, start)


def _is_count(script: Script, node: cst.BaseExpression) -> bool:
    """Return whether an expression is an integer of the host."""
    if isinstance(node, cst.Integer):
        return True
    if isinstance(node, cst.Subscript):
        return isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
    if isinstance(node, cst.Attribute):
        return node.attr.value == "training"
    if not isinstance(node, cst.Call):
        return False
    func = node.func
    sized = method_of(node) in _SIZES
    return sized or script.name(func) == "builtins.len"


def _starts(script: Script, target: cst.BaseExpression) -> list[Binding]:
    """Return what sets an attribute of a network, or a name of a module, to something else."""
    return [
        each
        for each in _bindings(script, target)
        if isinstance(each.node, (cst.Assign, cst.AnnAssign)) and not _adds(script, each.node)
    ]


def _adds(script: Script, line: cst.Assign | cst.AnnAssign) -> bool:
    """Return whether a line sets something to itself and more."""
    if not isinstance(line, cst.Assign) or not isinstance(line.value, cst.BinaryOperation):
        return False
    return script.code(line.value.left) == script.code(line.targets[0].target)


def _bindings(script: Script, target: cst.BaseExpression) -> list[Binding]:
    """Return the bindings of an attribute of a network, or of a name of a module."""
    if isinstance(target, cst.Name):
        scope = script.scopes.lookup(target.value, script.scopes.scope(target))
        home = scope.node if scope is not None else None
        if scope is None or not isinstance(home, cst.Module):
            return []
        return list(scope.bindings.get(target.value, ()))
    if not isinstance(target, cst.Attribute) or script.kind(target.value) is not Kind.MODULE:
        return []
    owner = script.scopes.class_of(target)
    if owner is None or not script.functions.is_self(target.value):
        return []
    word = target.attr.value
    return [
        each
        for line in script.functions.lineage(owner)
        for name in (f"self.{word}", word)
        for each in script.scopes.scope_at(line).bindings.get(name, ())
    ]


def _is_list(script: Script, target: cst.BaseExpression) -> bool:
    """Return whether something that outlives a step begins as an empty list."""
    starts = _starts(script, target)
    return bool(starts) and all(
        isinstance(each.value, cst.List)
        or (isinstance(each.value, cst.Call) and script.name(each.value.func) == "builtins.list")
        for each in starts
    )


def _is_emptied(script: Script, target: cst.BaseExpression) -> bool:
    """Return whether something empties a list in every step."""
    mentions: list[cst.CSTNode]
    if isinstance(target, cst.Attribute):
        mentions = list(script.functions.attributes(target.attr.value))
    else:
        mentions = [name for name in script.tree.all(cst.Name) if name.value == script.code(target)]
    for mention in mentions:
        holder = script.tree.parent(mention)
        empties = isinstance(holder, cst.Attribute) and holder.attr.value in _EMPTYING
        deletes = isinstance(holder, cst.Subscript)
        sets = isinstance(holder, cst.AssignTarget) and not (
            isinstance(line := script.tree.parent(holder), cst.Assign) and _adds(script, line)
        )
        if (empties or deletes or sets) and _runs_in_steps(script, mention):
            return True
    return False


def _runs_in_steps(script: Script, node: cst.CSTNode) -> bool:
    function = script.scopes.function(node)
    compiled = any(frame.function is function for frame in script.modules.compiled.frames)
    return compiled or script.loops.each_step(node)


# -- set by the training loop -------------------------------------------------------


def _set_by_loops(script: Script) -> Iterator[Change]:
    """Yield the lines of training loops that set what compiled networks are guarded on."""
    for loop in script.loops.of(Role.TRAIN_BATCH):
        for line in script.tree.within(loop.node.body, cst.Assign):
            target = line.targets[0].target
            if not isinstance(target, cst.Attribute) or not script.loops.each_step(line):
                continue
            if script.loops.invariances.of(line.value, loop.node) is Invariance.INVARIANT:
                continue
            frame = _guarded(
                script, target, line.value, script.loops.frequencies.counter(loop.node)
            )
            if frame is not None:
                yield Change(line, script.code(target), "setting", frame)


def _guarded(
    script: Script, target: cst.Attribute, value: cst.BaseExpression, counter: str | None
) -> Frame | None:
    """Return the compiled function that is guarded on what a loop sets."""
    network: cst.BaseExpression = target.value
    word = target.attr.value
    if word == "p" and isinstance(network, cst.Attribute):
        if script.values.attentions.dropout_layer(network) is None:
            return None
        word, network = network.attr.value, network.value
        counted = True
    else:
        counted = counter is not None and script.code(value) == counter
    owner = script.functions.instance_of(network)
    for frame in script.modules.compiled.frames if owner is not None else ():
        if frame.owner is not owner:
            continue
        for read in script.functions.own(frame.function, cst.Attribute):
            if read.attr.value == word and script.scopes.reads(read):
                if counted or _is_in_math(script, read):
                    return frame
    return None


def _is_in_math(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a number is given to a function of `math`, for which it must be known."""
    call = script.tree.parent(script.tree.parent(node))
    return isinstance(call, cst.Call) and (script.name(call.func) or "").startswith("math.")
