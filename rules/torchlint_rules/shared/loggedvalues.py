"""Values read in a loop that a logging line shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    ASSIGNED,
    TENSORS,
    Binding,
    Frequency,
    How,
    Loop,
    Script,
    method_of,
    receiver_of,
)

_COUNTS: Final = frozenset("count n n_iter steps num name".split())
_HELPERS: Final = 2
"""How far a dictionary is followed into the functions that get it."""


class Shown(NamedTuple):
    """A value that a line shows: its source text, and the expression that waits for it."""

    text: str
    place: cst.BaseExpression


def shown(script: Script, args: Iterable[cst.Arg], loop: Loop | None) -> Shown | None:
    """Return the first value in arguments that a call shows which forces a sync.

    Values that a loop read before the call count as well.
    """
    for arg in args:
        if arg.keyword is None or arg.keyword.value not in ("file", "step", "global_step"):
            found = _waited_for(script, arg.value, loop, ASSIGNED)
            if found is not None:
                return found
    return None


def _waited_for(
    script: Script, region: cst.BaseExpression, loop: Loop | None, depth: int
) -> Shown | None:
    loop = loop if depth else None
    reading = next(script.readings.within(region), None)
    if reading is not None:
        return Shown(script.code(reading.node), reading.node)
    if loop is not None and (returned := _returned(script, region, loop, depth - 1)) is not None:
        return returned
    for grad in script.tree.within(region, cst.Attribute):
        if grad.attr.value == "grad" and script.code(grad.value) != "self":
            if script.name(grad) is None and not script.readings.asks_form(grad):
                return Shown(script.code(grad), grad)
    for name in script.tree.within(region, cst.Name):
        if not script.scopes.reads(name):
            continue
        for whole in dict.fromkeys((name, _whole(script, name))):
            if _is_value(script, whole) and script.values.placement.may_be_on_device(whole):
                return Shown(script.code(whole), whole)
        if loop is not None and script.kind(name) not in TENSORS and _is_value(script, name):
            if read := _was_read(script, name, loop, depth - 1):
                return Shown(_text(script, name), read)
        if loop is not None and (grown := _grown(script, name, loop, depth - 1)):
            return grown
    return None


def _returned(script: Script, region: cst.BaseExpression, loop: Loop, depth: int) -> Shown | None:
    """Return what a function reads in each pass for the value that it returns to a region."""
    for call in script.tree.within(region, cst.Call):
        callee = script.functions.callee(call)
        for value in script.functions.returns(callee) if callee is not None else ():
            found = _waited_for(script, value, loop, depth)
            if found is not None and _runs_each_pass(script, found.place, loop):
                return Shown(script.code(call), found.place)
    return None


def _is_value(script: Script, name: cst.BaseExpression) -> bool:
    """Return whether a use is of a value, not of a part of it that the host knows anyway."""
    holder = script.tree.parent(name)
    if isinstance(holder, (cst.CompFor, cst.Call)) or script.readings.asks_form(name):
        return False
    if isinstance(holder, cst.Attribute):
        walks = holder.attr.value in ("items", "values")
        return holder.value is name and (walks or _stays(script, holder))
    return not isinstance(holder, cst.Arg) or holder.keyword is not name


def _stays(script: Script, attribute: cst.Attribute) -> bool:
    """Return whether a tensor method returns a tensor."""
    call = script.tree.parent(attribute)
    whole = call if isinstance(call, cst.Call) and call.func is attribute else attribute
    return script.kind(whole) in TENSORS


def _text(script: Script, name: cst.Name) -> str:
    """Return what a name stands for: in a comprehension what it draws from."""
    for binding in script.scopes.reaching(name):
        drawn = binding.value if isinstance(binding.node, cst.CompFor) else None
        owner = receiver_of(drawn)
        if owner is not None:
            return script.code(owner)
    return name.value


def _is_key(binding: Binding) -> bool:
    """Return whether a name stands for the key of an entry, which is no value that was read."""
    drawn = binding.value
    return binding.how is How.LOOP and binding.path[:1] == (0,) and method_of(drawn) == "items"


def _was_read(script: Script, name: cst.Name, loop: Loop, depth: int) -> cst.BaseExpression | None:
    """Return the read whose result the loop itself assigns to a name."""
    for binding in script.scopes.reaching(name):
        if (
            binding.value is not None
            and not _is_key(binding)
            and _is_below(script, binding.node, loop)
            and _runs_each_pass(script, binding.node, loop)
        ):
            for value in _assigned(script, binding):
                found = _waited_for(script, value, loop, depth)
                if found is not None and _runs_each_pass(script, found.place, loop):
                    return found.place
    return None


def _runs_each_pass(script: Script, node: cst.CSTNode, loop: Loop) -> bool:
    """Return whether a node of a loop runs in each pass, or of a function that each pass calls."""
    if not script.tree.inside(node, loop.node):
        return script.loops.frequency(node, script.scopes.function(node)) is Frequency.EVERY_PASS
    return script.loops.frequencies.each_pass(node, loop.node)


def _assigned(script: Script, binding: Binding) -> tuple[cst.BaseExpression, ...]:
    """Return what a name is assigned, alone or in a tuple, or drawn from; not that of a counter."""
    assert binding.value is not None
    if binding.how is How.UNPACKED:
        values = script.values.origins.of(binding.value, binding.path).values
        return tuple(each for each in values if any(True for _ in script.readings.within(each)))
    if binding.how is How.LOOP:
        source, _ = script.values.iteration.source(binding.value, binding.path)
        return (source,) if source is not None else ()
    return (binding.value,) if binding.how in (How.ASSIGN, How.AUGMENTED) else ()


def _is_below(script: Script, node: cst.CSTNode, loop: Loop) -> bool:
    """Return whether a node is in a loop, or in a function that it calls."""
    away = script.scopes.function(node) is not script.scopes.function(loop.node)
    return away or script.tree.inside(node, loop.node.body)


def _grown(script: Script, name: cst.Name, loop: Loop, depth: int) -> Shown | None:
    """Return what a name shows if the loop adds read values to it."""
    whole = _whole(script, name)
    outer = script.tree.parent(script.tree.parent(whole))
    if isinstance(outer, cst.Call) and script.name(outer.func) == "builtins.len":
        return None
    if isinstance(whole, cst.Attribute) and whole.attr.value in _COUNTS:
        return None
    text = script.code(whole).replace("'", '"')  # inside an f-string they are others
    for target, values in (*_additions(script, loop), *_entries(script, name, loop)):
        path = script.code(target).replace("'", '"')
        if text != path and not text.startswith((f"{path}.", f"{path}[")):
            if not path.startswith(f"{text}["):
                continue
        for value in values:
            found = _waited_for(script, value, loop, depth)
            if found is not None:
                return Shown(text, found.place)
    return None


def _whole(script: Script, name: cst.Name) -> cst.BaseExpression:
    """Return the attribute or the entry of a name in an expression."""
    whole: cst.BaseExpression = name
    while True:
        outer = script.tree.parent(whole)
        if isinstance(outer, cst.Attribute) and outer.value is whole:
            call = script.tree.parent(outer)
            if isinstance(call, cst.Call) and call.func is outer:
                return whole
        elif not isinstance(outer, cst.Subscript) or outer.value is not whole:
            return whole
        whole = outer


def _additions(
    script: Script, loop: Loop
) -> Iterator[tuple[cst.BaseExpression, tuple[cst.BaseExpression, ...]]]:
    """Yield the containers that a loop adds to, and the added values."""
    for each in script.readings.accumulations(loop.role):
        if script.tree.inside(each.node, loop.node.body):
            yield each.target, each.values
    for line in script.tree.within(loop.node.body, cst.Assign):
        target = line.targets[0].target
        if isinstance(target, cst.Subscript) and script.loops.batch_loop(line) is loop:
            if script.loops.frequency(line) is Frequency.EVERY_PASS:
                yield target, (line.value,)


def _entries(
    script: Script, name: cst.Name, loop: Loop
) -> Iterator[tuple[cst.BaseExpression, tuple[cst.BaseExpression, ...]]]:
    """Yield what steps add to attributes, and what functions store in a dictionary of their own."""
    owner, function = script.scopes.class_of(name), script.scopes.function(name)
    for added in script.readings.accumulators.of_steps if owner is not None else ():
        if script.scopes.class_of(added.target) is owner:
            yield added.target, added.values
    if function is not None and not script.tree.inside(loop.node, function):
        yield from _stored(script, function, name.value, _HELPERS)


def _stored(
    script: Script, function: cst.FunctionDef, word: str, depth: int
) -> Iterator[tuple[cst.BaseExpression, tuple[cst.BaseExpression, ...]]]:
    """Yield the entries that a function, or a helper that it hands a dictionary, stores there."""
    for line in script.tree.within(function.body, cst.Assign):
        target = line.targets[0].target
        if isinstance(target, cst.Subscript) and script.code(target.value) == word:
            if script.loops.frequency(line, function) is Frequency.EVERY_PASS:
                yield target, (line.value,)
    for call in script.functions.own(function.body, cst.Call) if depth else ():
        callee = script.functions.callee(call)
        if callee is None or callee is function:
            continue
        for taken in callee.params.params:
            given = script.functions.passed(call, callee, taken.name.value)
            if isinstance(given, cst.Name) and given.value == word:
                for _, values in _stored(script, callee, taken.name.value, depth - 1):
                    yield given, values
