"""Assignments in a loop that copy a tensor to append to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import libcst as cst

from torchlint.api import (
    Frequency,
    Role,
    Script,
    root_of,
)
from torchlint_rules.shared.targets import target_of

TENSORS: Final = frozenset(
    f"torch.{word}" for word in "cat concat concatenate hstack vstack stack".split()
)
ARRAYS: Final = frozenset(
    f"numpy.{word}" for word in "append concatenate hstack vstack column_stack".split()
)
_FEW: Final = 8
_PASSING: Final = frozenset("cpu cuda to detach float half double long int numpy clone".split())
_UPDATE: Final = "update"
_METRIC: Final = ("compute", "reset")
"""The methods that a class has beside `update` if it is a metric."""
_PARTS: Final = re.compile(r"\bself\.\w*(layer|block|stage|level|head|kernel|scale|branch)")


class Growth(NamedTuple):
    """An assignment that copies `target` in every iteration of `loop` to append `added`.

    `own` is the target as an argument of the call; `starts_inside` says whether a branch of the
    loop fills it in the first iteration.
    """

    node: cst.Assign
    call: cst.Call
    function: str
    target: cst.BaseExpression
    own: cst.BaseExpression
    added: tuple[cst.BaseExpression, ...]
    loop: cst.For | cst.While
    starts_inside: bool


def growths(script: Script) -> Iterator[Growth]:
    """Yield the assignments that append to a tensor or an array in every iteration of a loop."""
    for site in script.calls.of(*TENSORS, *ARRAYS):
        found = _growth(script, site.node, site.name or "")
        if found is not None:
            yield found


def growing_states(script: Script) -> Iterator[tuple[cst.Assign, cst.Call]]:
    """Yield the assignments that append to what a metric keeps, in each of its updates."""
    for site in script.calls.of(*TENSORS, *ARRAYS):
        assigned, function = _assigned(script, site.node), script.scopes.function(site.node)
        owner = script.scopes.class_of(site.node)
        if assigned is None or function is None or owner is None or function.name.value != _UPDATE:
            continue
        if any(script.functions.method(owner, each) is None for each in _METRIC):
            continue
        assign, text = assigned[0], script.code(assigned[1])
        parts = [script.code(part) for part in _parts(site.node, site.name or "")]
        branches = [each for each in script.tree.ancestors(assign) if isinstance(each, cst.If)]
        inside = (each for each in branches if script.tree.inside(each, function))
        if text.startswith("self.") and parts.count(text) == 1 < len(parts):
            if all(_tells_first(script, each.test, text) for each in inside):
                yield assign, site.node


def _growth(script: Script, call: cst.Call, function: str) -> Growth | None:
    assigned = _assigned(script, call)
    if assigned is None or next(script.loops.around(call), None) is None:
        return None
    assign, target = assigned
    text = script.code(target)
    parts = _parts(call, function)
    own = [part for part in parts if script.code(part) == text]
    added = tuple(part for part in parts if script.code(part) != text)
    if len(own) != 1 or not added or script.loops.frequency(assign) is Frequency.RARE:
        return None
    if isinstance(target, cst.Name) and not _returns_in_eval(script, assign, own[0]):
        return None
    loop, starts_inside = _loop(script, assign, target)
    if loop is None:
        return None
    return Growth(assign, call, function, target, own[0], added, loop, starts_inside)


def _assigned(script: Script, call: cst.Call) -> tuple[cst.Assign, cst.BaseExpression] | None:
    """Return the assignment of a call's result, direct or in a branch, with its target."""
    for child, outer in script.tree.outward(call):
        found = target_of(script, child)
        if found is not None:
            return found
        passes = (
            (isinstance(outer, cst.IfExp) and child is not outer.test)
            or (isinstance(outer, cst.Attribute) and outer.attr.value in _PASSING)
            or (isinstance(outer, cst.Call) and child is outer.func)
        )
        if not passes:
            return None
    return None


def _parts(call: cst.Call, function: str) -> list[cst.BaseExpression]:
    """Return the items that a call concatenates."""
    plain = [arg.value for arg in call.args if arg.keyword is None and not arg.star]
    if function == "numpy.append":
        return plain[:2]
    joined = plain[:1] or [
        arg.value for arg in call.args if arg.keyword and arg.keyword.value == "tensors"
    ]
    if not joined or not isinstance(joined[0], (cst.List, cst.Tuple)):
        return []
    stars = [isinstance(each, cst.StarredElement) for each in joined[0].elements]
    if any(stars) is not (function == "torch.stack"):
        return []
    return [each.value for each in joined[0].elements]


def _returns_in_eval(script: Script, assign: cst.Assign, own: cst.BaseExpression) -> bool:
    """Return whether an iteration reads what the previous one assigned."""
    return isinstance(own, cst.Name) and any(
        binding.node is assign for binding in script.scopes.reaching(own)
    )


def _loop(
    script: Script, assign: cst.Assign, target: cst.BaseExpression
) -> tuple[cst.For | cst.While | None, bool]:
    """Return the outermost loop that only appends to the target, and whether it starts it."""
    found: cst.For | cst.While | None = None
    starts_inside = False
    for loop in script.loops.around(assign):
        if found is None and loop.role is Role.EPOCH:
            break
        uses = _uses(script, assign, target, loop.node)
        if uses is None or (found is None and _few(script, loop.node)):
            break
        if not _chosen_inside(script, target, loop.node):
            found, starts_inside = loop.node, uses
    return found, starts_inside


def _few(script: Script, loop: cst.For | cst.While) -> bool:
    """Return whether a loop has few iterations, such as one over the layers of a network."""
    if not isinstance(loop, cst.For):
        return False
    if _PARTS.search(script.code(loop.iter)) or _runs_layers(script, loop):
        return True
    value = script.values.value_of(loop.iter).node
    if isinstance(value, (cst.List, cst.Tuple)):
        return len(value.elements) <= _FEW
    if not isinstance(value, cst.Call) or script.name(value.func) != "builtins.range":
        return False
    bounds = [script.values.value_of(arg.value).literal for arg in value.args]
    return all(type(bound) is int for bound in bounds) and len(range(*bounds)) <= _FEW


def _runs_layers(script: Script, loop: cst.For) -> bool:
    """Return whether each iteration runs another layer: `self.convs[i](x)`."""
    return any(
        isinstance(call.func, cst.Subscript)
        and script.code(call.func.value).startswith("self.")
        and any(
            isinstance(index.slice, cst.Index)
            and script.code(index.slice.value) == script.code(loop.target)
            for index in call.func.slice
        )
        for call in script.tree.within(loop.body, cst.Call)
    )


def _chosen_inside(script: Script, target: cst.BaseExpression, loop: cst.For | cst.While) -> bool:
    """Return whether each iteration of a loop appends to another entry (`d[key]`)."""
    return any(
        script.tree.inside(binding.node, loop)
        for name in script.tree.within(target, cst.Name)
        if name is not root_of(target, items=True) and script.scopes.reads(name)
        for binding in script.scopes.reaching(name)
    )


def _uses(
    script: Script, assign: cst.Assign, target: cst.BaseExpression, loop: cst.For | cst.While
) -> bool | None:
    """Return whether a loop has a branch that starts the target, None if it reads it otherwise.

    Comparisons with None do not read the tensor.
    """
    text, starts_inside = script.code(target), False
    root = root_of(target, items=True)
    if isinstance(root, cst.Name) and root is not target:
        if any(script.tree.inside(b.node, loop) for b in script.scopes.reaching(root)):
            return None
    for use in script.tree.within(loop, type(target)):
        if script.code(use) != text or use is target:
            continue
        line = script.tree.smallest_statement(use)
        if isinstance(line, cst.Assign) and _grows_too(script, line, use, text):
            continue
        if _is_start(script, use, assign, text):
            starts_inside = True
        elif not _is_asked_for(script, use):
            return None
    if isinstance(target, cst.Name) and _read_by_others(script, target):
        return None
    if isinstance(target, cst.Attribute) and _read_by_callees(script, loop, text):
        return None
    return starts_inside


def _grows_too(script: Script, line: cst.Assign, use: cst.CSTNode, text: str) -> bool:
    """Return whether a use of the target is part of an assignment that appends to it."""
    grown = [
        call
        for call in script.tree.within(line, cst.Call)
        if (found := _assigned(script, call)) and script.code(found[1]) == text
    ]
    if not grown:
        return False
    if script.scopes.reads(use) is False or use is line.targets[0].target:
        return any(
            script.code(part) == text
            for call in grown
            for part in _parts(call, script.name(call.func) or "")
        )
    element = script.tree.parent(use)
    if isinstance(element, cst.Comparison):
        return _is_asked_for(script, use)
    holder = script.tree.parent(element)
    call = script.tree.parent(holder) if isinstance(holder, (cst.List, cst.Tuple)) else element
    if isinstance(call, cst.Arg):
        call = script.tree.parent(call)
    return isinstance(call, cst.Call) and (script.name(call.func) or "") in TENSORS | ARRAYS


def _is_asked_for(script: Script, use: cst.CSTNode) -> bool:
    """Return whether a use only asks if the target is empty (`x is None`, `len(x) == 0`)."""
    holder = script.tree.parent(use)
    if isinstance(holder, cst.Arg):
        call = script.tree.parent(holder)
        if isinstance(call, cst.Call) and script.name(call.func) == "builtins.len":
            holder, use = script.tree.parent(call), call
    while isinstance(holder, cst.ComparisonTarget):
        holder = script.tree.parent(holder)
    if isinstance(holder, cst.Comparison) and len(holder.comparisons) == 1:
        other = holder.comparisons[0].comparator
        return isinstance(other, (cst.Name, cst.Integer)) and script.code(other) in ("None", "0")
    return False


def _is_start(script: Script, use: cst.CSTNode, growth: cst.Assign, text: str) -> bool:
    """Return whether a use is the target in the branch for all iterations but the first."""
    line = script.tree.smallest_statement(use)
    if not isinstance(line, cst.Assign) or len(line.targets) != 1:
        return False
    if line.targets[0].target is not use and script.scopes.reads(use):
        return False
    for outer in script.tree.ancestors(line):
        if isinstance(outer, cst.If) and script.tree.inside(growth, outer):
            return _tells_first(script, outer.test, text)
    return False


def _tells_first(script: Script, test: cst.BaseExpression, text: str) -> bool:
    """Return whether a test distinguishes the first iteration from the others."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _tells_first(script, test.expression, text)
    if isinstance(test, (cst.Name, cst.Attribute)):
        return script.code(test) == text or _is_switched(script, test)
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        other = test.comparisons[0].comparator
        return script.code(other) in ("None", "0", "1", "True") and isinstance(
            other, (cst.Name, cst.Integer)
        )
    return False


def _is_switched(script: Script, flag: cst.BaseExpression) -> bool:
    """Return whether a flag holds one truth value before a loop and the other one after."""
    values = [each.assigned for each in script.functions.bindings(flag)]
    switched = [each.value for each in values if isinstance(each, cst.Name)]
    return len(switched) == len(values) and set(switched) == {"True", "False"}


def _read_by_others(script: Script, target: cst.Name) -> bool:
    """Return whether nested functions, or other functions if the name is global, read a name."""
    scopes = script.scopes
    home = scopes.lookup(target.value, scopes.scope(target))
    return any(
        scopes.home(name) is not scopes.home(target)
        and scopes.lookup(name.value, scopes.scope(name)) is home
        and scopes.reads(name)
        for name in script.tree.spelled(target.value)
    )


def _read_by_callees(script: Script, loop: cst.For | cst.While, text: str) -> bool:
    """Return whether a method that the loop runs reads an attribute."""
    return any(
        script.code(mention) == text
        for body in script.functions.reached(loop)[1:]
        for mention in script.tree.within(body, cst.Attribute)
    )
